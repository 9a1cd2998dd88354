"""Arguments that do not fit: torch's outcome, or what was asked, what was found and what to do, in torch's types of errors."""

import re
from pathlib import Path

import numpy as np
import pytest
import torch
from calls import on, place
from pairs import PAIRS

from portable_softmax import DtypeError, LayoutError, explain, softmax, token_log_probs
from portable_softmax.operators import launching

__all__ = ["place"]
pytestmark = pytest.mark.filterwarnings("ignore")


def outcome(function, *arguments, **named):
    try:
        return function(*arguments, **named)
    except Exception as error:
        return error


def assert_alike(result, expected):
    if isinstance(expected, torch.Tensor):
        torch.testing.assert_close(result, expected)
    else:
        assert isinstance(result, type(expected)), f"{result!r} for {expected!r}"


DIMS = [
    *(True, False, np.bool_(True), 0.0, 1.0, 1.5, np.float64(1), "a", None, (1,), [1], np.array(1), np.array([1])),
    *(torch.tensor(1), torch.tensor([1]), torch.tensor(1.0), torch.tensor(True)),
    *(np.int64(1), np.int32(-1), np.uint8(0), np.int64(2), 1, -2, 2, -3, 10**9),
]


@pytest.mark.kernel
@pytest.mark.parametrize("dim", DIMS, ids=repr)
def test_a_dim_is_read_as_torch_reads_it(where, dim):
    x = torch.randn(2, 3, device=where)
    for _ in range(2):  # 1.0 and True are equal to 1, whose launch may be kept
        for same in (dim, int(dim) if isinstance(dim, float | bool) else 0):
            theirs = outcome(torch.softmax, x, same)
            if isinstance(theirs, RuntimeError) and re.search(r"\bname\b", str(theirs), re.IGNORECASE):
                theirs = TypeError("until torch 2.13 dimensions had names, which this package never took")
            assert_alike(outcome(softmax, x, same), theirs)


@pytest.mark.kernel
@pytest.mark.parametrize("dim", [-5, -2, 1, 4, 2**70, -(2**70), 2**63, -(2**63) - 1, 2**63 - 1, -(2**63)])
@pytest.mark.parametrize("shape", [(), (4,), (2, 3)], ids=str)
def test_a_dim_that_is_not_there_is_refused_in_torchs_words(where, form, shape, dim):
    ours, theirs = PAIRS[form]
    for given in (torch.zeros(shape, device=where), torch.zeros(shape, device=where, requires_grad=True)):
        refused, expected = outcome(ours, given, dim), outcome(theirs, given, dim)
        assert type(refused) is type(expected)
        assert isinstance(expected, torch.Tensor) or str(refused) == str(expected)


DTYPES = [float, int, bool, complex, "float32", np.float32, np.dtype("float32"), [torch.float32], 6, torch.int32]


@pytest.mark.kernel
@pytest.mark.parametrize("dtype", DTYPES, ids=repr)
def test_a_dtype_is_read_as_torch_reads_it(where, dtype):
    x = torch.randn(2, 3, device=where)
    result = outcome(softmax, x, 1, dtype)
    assert_alike(result, outcome(torch.softmax, x, 1, dtype=dtype))
    if isinstance(result, TypeError) and not isinstance(result, NotImplementedError):
        assert str(result) == f"softmax(): argument 'dtype' must be torch.dtype, not {type(dtype).__name__}"


@pytest.mark.kernel
@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2, torch.complex64, torch.int32], ids=str)
def test_types_that_torch_converts(where, form, dtype):
    """And gradients are converted back."""
    ours, theirs = PAIRS[form]
    x, dy = torch.randn(2, 2, 3, device=where)
    results = [outcome(ours, x.to(dtype), 1, torch.float32), outcome(theirs, x.to(dtype), 1, dtype=torch.float32)]
    assert_alike(*results)
    if dtype != torch.int32 and isinstance(results[1], torch.Tensor):
        leaves = [x.to(dtype).requires_grad_() for _ in range(2)]
        for function, leaf in zip((ours, theirs), leaves, strict=True):
            function(leaf, 1, dtype=torch.float32).backward(dy)
        assert leaves[0].grad.dtype == dtype
        torch.testing.assert_close(leaves[0].grad.to(torch.complex64), leaves[1].grad.to(torch.complex64), rtol=0.3, atol=1e-5)


X = torch.zeros(2, 3, 4, 5)
ONES, META = torch.ones, torch.ones(4, 5, device="meta")
LAYOUTS = {  # of an input that torch's operators may compute, and no kernel
    "nested": (lambda x: torch.nested.nested_tensor([x, x]), LayoutError, "nested tensor .* x.to_padded_tensor"),
    "jagged": (lambda x: torch.nested.nested_tensor([x], layout=torch.jagged), LayoutError, "nested tensor .* x.to_padded_"),
    "coo": (torch.Tensor.to_sparse, LayoutError, r"tensor of layout torch.sparse_coo .* x.to_dense\(\)"),
    "csr": (lambda x: x[0, 0].to_sparse_csr(), LayoutError, r"tensor of layout torch.sparse_csr .* x.to_dense\(\)"),
    "mkldnn": (torch.Tensor.to_mkldnn, LayoutError, r"tensor of layout torch._mkldnn .* x.to_dense\(\)"),
    "quantized": (lambda x: torch.quantize_per_tensor(x, 0.1, 0, torch.quint8), DtypeError, "of quint8 was asked for"),
    **{
        str(dtype): (
            lambda x, dtype=dtype: x.to(dtype),
            DtypeError,
            f"of {str(dtype)[6:]} was asked for; .* give one as dtype=",
        )
        for dtype in (torch.float8_e4m3fn, torch.float8_e5m2, torch.complex64, torch.int32)
    },
}
REFUSED = {
    **{f"{type(x).__name__} for a tensor": ({"input": x}, TypeError, rf"'input' must be Tensor, not {type(x).__name__}$")
       for x in ([[1.0, 2.0]], None, np.zeros((2, 2)), 1.0, "x", torch.float32)},
    "a list, with a scale": ({"input": [1.0], "scale": 2.0}, TypeError, "argument 'input' must be Tensor, not list"),
    **{f"dim {dim}": ({"dim": dim}, TypeError, f"argument 'dim' must be int, not {type(dim).__name__}")
       for dim in (True, 1.0, None)},
    "a dim that is not there": ({"scale": 2.0, "dim": 4}, IndexError, r"expected to be in range of \[-4, 3\], but got 4"),
    "a dtype of integers": ({"scale": 2.0, "dtype": torch.int32}, DtypeError, "name a floating-point dtype"),
    "integers, with a scale": ({"input": X.int(), "scale": 2.0}, DtypeError, "name a floating-point dtype"),
    "a mask that does not broadcast": (
        {"mask": ONES(3, 5, dtype=torch.bool)}, RuntimeError,
        r"'mask' of shape \(3, 5\) does not broadcast against input of shape \(2, 3, 4, 5\); .* like \(1, 3, 1, 5\)$",
    ),
    "a mask of other sizes": ({"mask": ONES(6, 5)}, RuntimeError, "does not broadcast .*; each of its last sizes must"),
    "a mask of more dimensions": ({"mask": ONES(1, 2, 3, 4, 5)}, RuntimeError, "argument 'mask' .* does not broadcast"),
    "a mask of integers": (
        {"mask": ONES(4, 5, dtype=torch.int64)}, DtypeError,
        r"argument 'mask' must be boolean, or floating to be added, not torch.int64; give mask.bool\(\), which is True",
    ),
    "a mask of complex numbers": ({"mask": ONES(4, 5) + 0j}, DtypeError, "must be boolean, or floating"),
    "a mask that is no tensor": ({"mask": [True] * 5}, TypeError, "argument 'mask' must be Tensor, not list"),
    "a sparse mask": ({"mask": ONES(4, 5).to_sparse()}, TypeError, r"must be a strided tensor; use mask.to_dense\(\)"),
    "a mask elsewhere": (
        {"mask": META}, RuntimeError, "on the same device, but input is on .* and argument 'mask' on meta; use mask.to",
    ),
    "scales along dim": (
        {"scale": ONES(4, 5)}, RuntimeError,
        r"'scale' has one number for each row, so its size along dim 3 must be 1, and its shape is \(4, 5\); .* \(2, 3, 4, 1\)",
    ),
    "temperatures of a batch": ({"temperature": ONES(2)}, RuntimeError, r"does not broadcast .* like \(2, 1, 1, 1\)"),
    "a scale of booleans": ({"scale": ONES(1, dtype=torch.bool)}, DtypeError, "'scale' must hold real numbers"),
    "a scale of words": ({"scale": "2"}, TypeError, "argument 'scale' must be a number or Tensor, not str"),
    "a temperature of a boolean": ({"temperature": True}, TypeError, "'temperature' must be a number or Tensor, not bool"),
    "a temperature elsewhere": ({"temperature": META[:1, :1]}, RuntimeError, "'temperature' on meta"),
    "sinks of other heads": (
        {"sink": ONES(4)}, RuntimeError,
        r"'sink' of shape \(4,\) is of one number for each head, and input of shape \(2, 3, 4, 5\) has 3 heads; "
        r"give it the shape \(3,\), or one for each row: \(2, 3, 4, 1\)",
    ),
    "sinks of sequences and heads": ({"sink": ONES(2, 3)}, RuntimeError, r"give it a shape like \(2, 3, 1, 1\)"),
    "sinks along dim": ({"sink": ONES(1, 5)}, RuntimeError, "'sink' has one number for each row"),
    **{f"causal {words!r}": ({"causal": words}, ValueError, "must be True, False, 'upper_left' or 'lower_right', not ")
       for words in ("lower", 1, None)},
    "causal along another dim": ({"causal": True, "dim": 1}, ValueError, "dimension, and dim is 1 of 4; give input.movedim"),
    "causal of one dimension": ({"input": X[0, 0, 0], "causal": True}, ValueError, "last two dimensions, and input has 1;"),
    **{f"a cap of {cap:.3g}" if cap != 10**400 else "a large cap": (
        {"softcap": cap}, ValueError, "argument 'softcap' must be positive and finite, not .*; None is no cap")
       for cap in (0, -1.0, float("nan"), float("inf"), 10**400)},
    "a tensor as cap": ({"softcap": ONES(())}, TypeError, "argument 'softcap' must be a number, not Tensor"),
    "masked rows of 0": ({"masked_rows": 0}, ValueError, "argument 'masked_rows' must be 'nan' or 'zero', not 0"),
    "a result of another type": ({"out": X.double()}, RuntimeError, "Expected out tensor to have dtype float, but got double"),
    "a result elsewhere": ({"out": META}, RuntimeError, "Expected out tensor to have device .*, but got meta instead"),
    "a sparse result": ({"out": X.to_sparse()}, LayoutError, "into a tensor that is of layout torch.sparse_coo .*; give"),
    "a result that is no tensor": ({"out": 1.0}, TypeError, "out"),
}  # fmt: skip


def words_of(error):
    return re.sub(r"^(softmax|explain)\(\)", "", str(error).split("\n")[0]).replace("argument 'x'", "argument 'input'")


@pytest.mark.parametrize(("given", "error", "words"), REFUSED.values(), ids=REFUSED)
def test_what_does_not_fit_is_refused(place, form, given, error, words):
    """By torch's operators too, and `explain` says the same."""
    if launching.by_torch(torch.empty(1, device=place)) and given.keys() <= {"input", "dim"}:
        return  # torch itself is asked
    given = {"input": X} | given
    given = {name: each.to(place) if torch.is_tensor(each) and not each.is_meta else each for name, each in given.items()}
    input = given.pop("input")
    with pytest.raises(error, match=words) as refused:
        PAIRS[form][0](input, **given)
    assert isinstance(refused.value, IndexError | DtypeError) or "out" in given or str(refused.value).startswith(f"{form}()")
    if form == "softmax":
        told = outcome(explain, input, **given)
        assert type(told) is error
        assert error is DtypeError or words_of(told) == words_of(refused.value)


@pytest.mark.kernel
@pytest.mark.parametrize(("make", "error", "words"), LAYOUTS.values(), ids=LAYOUTS)
def test_inputs_that_no_kernel_reads(where, form, make, error, words):
    if make is torch.Tensor.to_mkldnn and where.type != "cpu":
        pytest.skip("mkldnn tensors are on the CPU")
    x, ours = make(X.to(where)), PAIRS[form][0]
    for call in (ours, explain) if form == "softmax" else (ours,):
        with pytest.raises(error, match=words) as refused:
            call(x, -1)
        assert isinstance(refused.value, NotImplementedError)
    for given in ({"dtype": torch.float32}, {"scale": 2.0}) if error is LayoutError else ():
        with pytest.raises(LayoutError, match=words):
            ours(x, **given)


def test_integers_that_torch_refuses_are_refused_in_its_words(by_torch):
    for call in (softmax, explain):
        with pytest.raises(NotImplementedError, match=re.escape(str(outcome(torch.softmax, X.int(), -1)))):
            call(X.int())


def test_dtensors_are_torchs_or_refused(tmp_path):
    from torch.distributed import destroy_process_group, init_process_group
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Replicate, distribute_tensor

    init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    try:
        x = distribute_tensor(X, init_device_mesh("cpu", (1,)), [Replicate()])
        assert torch.equal(softmax(x).to_local(), torch.softmax(X, -1))
        for words, call in (
            ("argument 'input' is a DTensor; give local tensors", lambda: softmax(x, scale=2.0, causal=True)),
            ("argument 'mask' is a DTensor", lambda: softmax(X, mask=x)),
            ("argument 'out' is a DTensor", lambda: softmax(X, out=x)),
            ("argument 'logits' is a DTensor", lambda: token_log_probs(x, X[..., 0].long())),
            (r"give x.to_local\(\)", lambda: explain(x)),
        ):
            with pytest.raises(TypeError, match=words):
                call()
    finally:
        destroy_process_group()


@pytest.mark.parametrize(
    ("given", "like"),
    [
        ({"scale": np.float32(2)}, {"scale": 2.0}),
        ({"scale": 2}, {"scale": 2.0}),
        ({"scale": torch.tensor([2], dtype=torch.int64)}, {"scale": 2.0}),
        ({"temperature": torch.tensor(2.0)}, {"temperature": 2.0}),
        ({"sink": torch.arange(3.0)}, {"sink": torch.arange(3.0).view(1, 3, 1, 1)}),
        ({"sink": torch.ones(1)}, {"sink": 1.0}),
        ({"mask": torch.ones(5).to(torch.float8_e4m3fn)}, {"mask": torch.ones(5)}),
        ({"causal": "upper_left"}, {"causal": True}),
    ],
    ids=str,
)
def test_what_is_read_as_the_same(place, given, like):
    x = torch.randn(X.shape, device=place)
    torch.testing.assert_close(softmax(x, **on(place, given)), softmax(x, **on(place, like)))


def test_the_example_of_usage_runs(by_torch):
    blocks = re.findall(r"```python\n(.*?)```", (Path(__file__).parents[2] / "docs/usage.md").read_text(), re.DOTALL)
    (code,) = [block for block in blocks if "temperature=" in block]
    names = {"torch": torch, "softmax": softmax}
    exec(code, names)
    assert names["weights"][1, :, :, 5:].eq(0).all()
    assert names["probabilities"][0].max() == 1
