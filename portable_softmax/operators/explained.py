"""Says how a call of softmax is computed: the plan of its launch, and what torch does before, or instead."""

from collections.abc import Iterator

import torch

from portable_softmax.devices.detect import interpreting
from portable_softmax.devices.device import Device
from portable_softmax.errors import LayoutError
from portable_softmax.invariance import is_batch_invariant
from portable_softmax.operators.arguments import KERNEL_DTYPES, autocast_dtype, check_layout, device_of, wrap_dim
from portable_softmax.operators.layout import AS_THEY_LIE, Way, arranged
from portable_softmax.operators.scored_arguments import Given, read
from portable_softmax.operators.scored_plan import Wanted, as_kernels_take, described
from portable_softmax.planning.problem import Problem
from portable_softmax.runtime.launch import name_of, problem_from
from portable_softmax.runtime.plans import plan_problem


def explained(x: torch.Tensor, dim: int, dtype: torch.dtype | None, given: Given) -> str:
    """Returns lines about softmax(x, dim, dtype, ...); compiles the kernel that the call would, and launches none."""
    return "\n".join(_lines(x.detach(), dim, dtype, given))


def _lines(x: torch.Tensor, dim: int, dtype: torch.dtype | None, given: Given) -> Iterator[str]:
    if x.is_cpu and not interpreting():
        yield "torch.softmax computes it: the tensor is on the CPU, and TRITON_INTERPRET=1 is not set"
        return
    check_layout("softmax", x)
    dim, y_dtype = wrap_dim(dim, x.dim()), dtype or autocast_dtype(x)
    if dtype is not None and x.dtype not in KERNEL_DTYPES:
        yield f"torch converts {name_of(x.dtype)} to {name_of(dtype)} first, which is read by the kernel"
        x = x.to(dtype)
    device = device_of(x, x.dtype, y_dtype)
    if not x.numel():
        yield "nothing is computed: the tensor has no elements"
        return
    invariant = is_batch_invariant()
    try:
        way, problem = _described(x, dim, y_dtype, device, invariant, given)
    except LayoutError as error:
        yield f"a launch for each index of the outermost dimension computes it: {error}"
        return
    if way is not AS_THEY_LIE:
        reason = "batch_invariant reads rows as those of a contiguous tensor" if invariant else "no kernel takes these strides"
        yield f"the input is copied first, and the result back if need be: {reason}"
    found = plan_problem(problem, device)
    shape = f"{found.problem.n_rows} rows of {found.problem.n_cols} columns"
    yield f"a kernel of this package computes {shape} on {device.name}, {name_of(x.dtype)} to {name_of(y_dtype)}:"
    yield str(found)


def _described(
    x: torch.Tensor, dim: int, dtype: torch.dtype, device: Device, invariant: bool, given: Given
) -> tuple[Way, Problem]:
    """Returns whether x is copied first, and the problem that the call launches."""
    if given == Given():
        way, taken, lines = arranged((x.new_empty(x.shape, dtype=dtype), x), dim, device, invariant, n_read=2)
        return way, problem_from(taken, lines, "softmax", False, invariant)
    asked = read("softmax", x, dim, dtype, given)
    mask = None if asked.mask is None else asked.mask.expand(x.shape)
    y = x.new_empty(x.shape, dtype=dtype)
    wanted, _ = as_kernels_take(Wanted(dim, "softmax", invariant, asked.scores, device), asked.by, y)
    return described((y, asked.x), wanted, mask)
