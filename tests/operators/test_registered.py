"""Registered operators, which graphs and passes call: with every dim, and with arguments of other shapes and types."""

import pytest
import torch
from torch._subclasses import FakeTensorMode
from torch.library import opcheck
from torch.utils._pytree import tree_map

from portable_softmax.api import functional, tokens  # noqa: F401  (register operators)

SHAPE = 2, 3, 4
ALL = "test_schema", "test_autograd_registration", "test_faketensor", "test_aot_dispatch_dynamic"
DIMS = range(-len(SHAPE), len(SHAPE))
RESULTS = "statistics", "d_out", "d_lse", "d_entropy"
NAMES = "softmax", "softmax_backward", "token_log_probs", "token_log_probs_backward", "sample_token"


def arguments_of(name, dim, where):
    """Returns arguments of an operator by name: all tensors that there may be, numbers for what is none."""
    rows = [1 if at == dim % len(SHAPE) else size for at, size in enumerate(SHAPE)]
    squeezed = SHAPE[: dim % len(SHAPE)] + SHAPE[dim % len(SHAPE) + 1 :]

    def tensor(*shape):
        return torch.rand(shape, device=where) + 0.1

    factors = {"scale": tensor(*rows), "temperature": None}
    numbers = {"scale_number": None, "temperature_number": 1.5, "softcap": 2.0}
    ids = torch.randint(-1, SHAPE[dim], squeezed, device=where)
    if name == "softmax":
        named = {"x": tensor(*SHAPE), "mask": tensor(3, 4) > 0.3, **factors, "sink": tensor(*rows), **numbers}
        return named | {"log": True, "dim": dim, "dtype": torch.float32, "causal": None, "zero_rows": True}
    if name == "sample_token":
        keys = {"temperature": tensor(2, 3, 1), "min_p": None, "seed": torch.arange(3, device=where), "position": None}
        numbers = {"temperature_number": None, "min_p_number": 0.1, "seed_number": None, "position_number": -3, "softcap": 2.0}
        return {"x": tensor(*SHAPE), "mask": tensor(3, 4) > 0.1, **keys, **numbers}
    if name == "softmax_backward":
        named = {"dy": tensor(*SHAPE), "y": tensor(*SHAPE), "x": tensor(*SHAPE), **factors, **numbers}
        return named | {"log": False, "dim": dim, "voids": True, "dtype": torch.float32}
    options = {"dim": dim, "ignore_index": -1, "entropy": True, "lse": True}
    mask = tensor(*SHAPE) > 0.3
    mask.select(dim, 0).fill_(True)  # a row without a kept token is nan, which opcheck compares as unequal
    named = {"x": tensor(*SHAPE), "ids": ids, "mask": mask, **factors, **numbers, **options, "zero_rows": False}
    return named if name == "token_log_probs" else with_results(named, *(tensor(*squeezed) for _ in range(3)))


def with_results(named, *gradients):
    """Returns arguments of the gradient of log-probabilities: statistics of the forward, and gradients of its results."""
    x, ids, *rest = named.values()
    statistics = torch.ops.portable_softmax.token_log_probs(x, ids, *rest)[1]
    results = dict(zip(RESULTS, (statistics, *gradients), strict=True))
    return {"x": x, "ids": ids, **results, **{name: value for name, value in named.items() if name not in ("x", "ids")}}


def in_double(value):
    """Returns a tensor or dtype of the same call in float64, which the reference computes."""
    if isinstance(value, torch.Tensor) and value.is_floating_point():
        return value.double()
    return torch.float64 if isinstance(value, torch.dtype) and value.is_floating_point else value


def changed(named):
    """Yields (words, arguments) with one of them changed: its sizes, its rank, its dtype; dims, and numbers beside tensors."""
    for name, value in named.items():
        others = []
        if isinstance(value, torch.Tensor):
            others += [value.narrow(at, 0, n) for at, size in enumerate(value.shape) for n in range(size)]
            others += [torch.cat([value, value], at) for at in range(value.dim())]
            others += [value.transpose(0, -1).contiguous().transpose(0, -1)] if value.dim() else []
            others += [value[None], value[0], value.flatten(), value.new_ones(()), value.to_sparse(), value.to("meta")]
            kinds = torch.float64, torch.float16, torch.float8_e5m2, torch.int64, torch.bool, torch.complex64
            others += [value.to(kind) for kind in kinds]
        elif value is None or "number" in name or name == "softcap":
            others += 0.5, None
        elif name == "dtype":
            others += torch.int64, torch.float8_e5m2
        elif name == "dim":
            others += -len(SHAPE) - 1, len(SHAPE), 2**40
        for other in others:
            words = f"{tuple(other.shape)} {other.dtype} {other.layout}" if isinstance(other, torch.Tensor) else other
            yield f"{name} {words}", named | {name: other}


def outcome(operator, values):
    """Returns the results of a call, or None if it is refused."""
    try:
        results = operator(*values)
    except (RuntimeError, TypeError, ValueError, IndexError):
        return None
    return results if isinstance(results, tuple) else (results,)


def faked(operator, values):
    with FakeTensorMode() as mode:
        return outcome(operator, [mode.from_tensor(v) if isinstance(v, torch.Tensor) else v for v in values])


@pytest.mark.parametrize("device", ["cpu", pytest.param("where", marks=pytest.mark.kernel)])
@pytest.mark.parametrize("name", NAMES)
def test_every_dim(name, device, request):
    """Of the reference on a CPU, and of kernels."""
    where = device if device == "cpu" else request.getfixturevalue(device)
    operator = getattr(torch.ops.portable_softmax, name).default
    for dim in DIMS if name != "sample_token" else [-2]:
        named = arguments_of(name, dim, where)
        if name in ("softmax", "token_log_probs"):
            for argument in named.values():
                if isinstance(argument, torch.Tensor) and argument.is_floating_point():
                    argument.requires_grad_()
        # Tracing takes seconds, and differs by gradients: of one dim, from the end.
        tests = ALL if dim == -2 and "backward" not in name else ("test_schema", "test_faketensor")
        opcheck(operator, tuple(named.values()), test_utils=tests)
        compare(operator, tree_map(lambda v: v.detach() if isinstance(v, torch.Tensor) else v, named), f"dim {dim}")


@pytest.mark.kernel
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dim", [-1, *(pytest.param(dim, marks=pytest.mark.slow) for dim in (0, -2))])
def test_arguments_of_other_shapes_and_types(name, dim, where):
    """Of the last dim every third change; of the others those that are left."""
    operator = getattr(torch.ops.portable_softmax, name).default
    cases = list(changed(arguments_of(name, dim, where)))[dim + 2 :: 3]
    assert sum(compare(operator, named, f"dim {dim}, {words}") for words, named in cases) > 3


def compare(operator, named, words):
    """Checks a call beside one in float64 and one of fake tensors: all are refused, or none; returns True if they are."""
    if "statistics" in named:  # which are those of a forward
        forward = {name: value for name, value in named.items() if name not in RESULTS}
        results = outcome(torch.ops.portable_softmax.token_log_probs.default, forward.values())
        if results is not None and results[1].shape == named["statistics"].shape:
            named = named | {"statistics": results[1].to(named["statistics"])}
    values = list(named.values())
    actual, exact, fake = outcome(operator, values), outcome(operator, tree_map(in_double, values)), faked(operator, values)
    assert (actual is None) == (fake is None), f"{words}: the kernel returns {actual}, its fake {fake}"
    if actual is None or exact is None:
        return actual is None
    for y, double, shape in zip(actual, exact, fake, strict=True):
        assert (y.shape, y.dtype, y.stride()) == (shape.shape, shape.dtype, shape.stride()), words
        if y.is_meta or not y.is_floating_point() or y.dtype.itemsize < 2:
            continue
        statistics = "log_probs" in operator.name() and y.dim() == len(SHAPE)  # the second is a rounding error
        y, double = (y[::2], double[::2]) if statistics and "backward" not in operator.name() else (y, double)
        torch.testing.assert_close(
            y.double(), double.double(), rtol=1e-2, atol=1e-2, equal_nan=True, msg=lambda m: f"{words}: {m}"
        )
    return False
