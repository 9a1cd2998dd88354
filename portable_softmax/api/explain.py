"""explain: the plan of a call's launch, or the reason why PyTorch's operators compute it."""

import inspect
from typing import Any

from torch import Tensor

from portable_softmax.api.functional import SOFTMAX, softmax
from portable_softmax.api.tokens import TOKENS, token_log_probs
from portable_softmax.devices.detect import chosen
from portable_softmax.devices.device import Device
from portable_softmax.invariance import is_batch_invariant
from portable_softmax.operators import checks, launch
from portable_softmax.runtime.plans import plan_problem


def explain(x: Tensor, dim: int = -1, *, device: Device | str | None = None, **options: Any) -> str:
    """Returns the plan of the kernel that softmax(x, dim, ...) launches, or why PyTorch's operators compute it, as text.

    The kernel is planned and compiled as for the call, with the strides and alignment of x, under the active autocast and
    batch_invariant, but not launched. log_softmax has the same launch. Errors are those of the call and of `plan`.

    Args:
        x: a tensor of any shape and strides. With `device`, it may be on the CPU or on meta, where it has no memory:
            `torch.empty(4096, 128256, device="meta")`.
        device: the device to plan for, as in `plan`; None is the device of x.
        options: those of `softmax`; or with `ids`, those of `token_log_probs`, which is explained then.
    """
    checks.check_tensor("explain", "x", x)
    operator, signature = SOFTMAX, inspect.signature(softmax)
    if "ids" in options:
        operator, signature = TOKENS, inspect.signature(token_log_probs)
    call = signature.bind(x, dim=dim, **options)
    call.apply_defaults()
    named, invariant = {"x": x, "log": False, **call.arguments}, is_batch_invariant()
    named |= {"zero_rows": checks.zero_rows_of("explain", named["masked_rows"]), "lse": named.get("return_lse")}
    args = checks.normalized("explain", operator.Args(*map(named.get, operator.Args._fields)))
    checked = operator.check(args, *map(named.get, operator.Options._fields))
    try:
        about = operator.describe(args, checked, invariant)
    except launch.NoKernel as error:
        return f"PyTorch's operators compute it: no kernel supports {error}"
    if device is None and (device := launch.device_of(x)) is None:
        return f"PyTorch's operators compute it: the tensor is on {x.device.type}; device='vendor/product' plans for another"
    target, copied = chosen(device), ""
    problem = launch.problem_of_call(operator, args, operator.results(args, checked), target, about)
    if problem is None:
        copied = "operands are copied first, for their strides or for batch_invariant\n"
        on_meta = args._replace(**{name: getattr(args, name).to("meta") for name in ("x", "mask") if named[name] is not None})
        copies, moved = launch.copies_of(operator, on_meta, checked, target, about)
        problem = launch.problem_of_call(operator, copies, operator.results(copies, moved), target, {**about, "dim": moved.dim})
    assert problem, "contiguous rows are read in place"
    shape = f"{problem.n_rows} rows of {problem.n_cols} columns on {target.name}, strides {x.stride()} along dim {checked.dim}"
    return f"{copied}one launch computes {problem.name} of {shape}\n{plan_problem(problem, target)}"
