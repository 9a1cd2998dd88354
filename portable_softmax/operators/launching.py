"""Calls as launches: the only place that plans one. All is decided and kept but the tensors."""

import struct
from collections.abc import Callable

import torch

from portable_softmax.devices.detect import interpreting
from portable_softmax.devices.device import Device
from portable_softmax.errors import LayoutError
from portable_softmax.operators import composite
from portable_softmax.operators.arguments import KERNEL_DTYPES, check_gradient, converted, device_of
from portable_softmax.operators.call import Asked, AskedGradient, Call, Operands, call_of, call_of_gradient
from portable_softmax.operators.layout import AS_THEY_LIE, Way, arranged, on_copies
from portable_softmax.operators.memory import find, keep
from portable_softmax.planning.problem import VECTOR_BYTES, Problem
from portable_softmax.runtime.allocation import allocator
from portable_softmax.runtime.guard import Guard, guard_of
from portable_softmax.runtime.launch import bind_problem, mask_sizes, problem_from

Run = Callable[..., torch.Tensor]  # of the operands, and of `out` ahead of them if there was one
Key = tuple[object, ...]


def forward(form: str, asked: Asked, batch_invariant: bool, out: torch.Tensor | None = None) -> torch.Tensor:
    """Computes a softmax by one launch, or by torch for tensors on the CPU.

    Args:
        form: softmax or log_softmax.
        asked: what of; x is copied only if its strides or `batch_invariant` need it.
        batch_invariant: True if a row's bits may not depend on the other rows.
        out: what a kernel writes to: of the result's shape and type, and any strides; x itself, or memory of no operand.

    Returns:
        `out`, or a new contiguous tensor of the shape of x.

    Raises:
        IndexError, DtypeError, DeviceError, PlanError, CompileError: the cases of api.functional.softmax.
    """
    if by_torch(asked.x):
        return composite.forward(form, asked)
    call, operands = call_of(form, asked._replace(x=converted(asked.x, asked.dtype)), batch_invariant)
    run = bound(call, operands, out)
    return run(*operands) if out is None else run(out, *operands)


def backward(form: str, asked: AskedGradient, batch_invariant: bool) -> torch.Tensor:
    """Computes the gradient of x, without the derivative of softcap, by one launch, or by torch for tensors on the CPU.

    Returns:
        A new contiguous tensor of the shape of y.

    Raises:
        IndexError, DtypeError, ValueError: the cases of check_gradient.
        DtypeError, DeviceError, PlanError, CompileError: no kernel computes it.
    """
    check_gradient(asked.dy, asked.y, asked.dim)
    if by_torch(asked.y):
        return composite.backward(form, asked)
    if asked.x_dtype not in KERNEL_DTYPES:
        return backward(form, asked._replace(x_dtype=asked.y.dtype), batch_invariant).to(asked.x_dtype)
    call, operands = call_of_gradient(form, asked, batch_invariant)
    return bound(call, operands)(*operands)


def by_torch(x: torch.Tensor) -> bool:
    """Tells whether torch computes a tensor, as it is on the CPU and no interpreter stands in for an accelerator."""
    return x.is_cpu and not interpreting()


def key_of(call: Call, operands: Operands, out: torch.Tensor | None = None) -> Key:
    """Returns all that a launch depends on."""
    x = operands[0]
    layouts = [(each.dtype, each.shape, each.stride(), each.data_ptr() % VECTOR_BYTES == 0) for each in operands]
    if out is None:
        return call, x.get_device(), *layouts
    place = out.data_ptr() == x.data_ptr(), out.shape, out.stride(), out.data_ptr() % VECTOR_BYTES == 0
    return call, x.get_device(), *layouts, place


def bound(call: Call, operands: Operands, out: torch.Tensor | None = None) -> Run:
    """Returns what computes a call of operands like these: on their device, on its current stream.

    Args:
        call: what is computed.
        operands: those that there are of (x, mask, factors, sinks), the mask of x's shape, by strides of 0; of (dy, y, factors)
            for a gradient.
        out: what the result is written to: of its shape and type, and any strides; x itself, or memory of no operand.

    Returns:
        run(*operands), which returns a new contiguous tensor; with `out`, run(out, *operands), which returns `out`.

    Raises:
        DtypeError, DeviceError, PlanError, CompileError: no kernel computes it.
    """
    key = key_of(call, operands, out)
    return find(key) or _bind(key, call, operands, out)


def _bind(key: Key, call: Call, operands: Operands, out: torch.Tensor | None) -> Run:
    """Plans and compiles a call, and keeps it; but none on copies of tensors of which some may be aligned in one call only."""
    x, y = operands[0], operands[call.backward]
    allocates = out is None and call.stores  # each call for itself
    result = y.new_empty(y.shape, dtype=call.dtype) if allocates else out
    taken = _in_rows(call, operands, result)
    device = device_of(x, *dict.fromkeys([*(each.dtype for each in taken[1:]), taken[0].dtype, call.dtype]))
    if not x.numel():
        return lambda *given: given[0] if out is not None else given[0].new_empty(given[0].shape, dtype=call.dtype)
    mask = operands[1] if call.scores.mask and not call.backward else None
    try:
        way, problem = described(call, taken, device, mask)
    except LayoutError:
        if not call.scores:
            raise
        return _in_slices(call, out is not None)
    numbers = _numbers(call, problem)
    if call.log_probs:
        numbers += call.n_ids, call.ignored
    launch = bind_problem(problem, device, x.device, numbers)
    if way is not AS_THEY_LIE:
        launch = on_copies(launch, way, call)
    guard = guard_of(device)
    run = _allocating(launch, result, len(operands), guard) if allocates and result is not None else _writing(launch, guard)
    if way is AS_THEY_LIE or all(each.data_ptr() % VECTOR_BYTES == 0 for each in taken):
        keep(key, run)
    return run


def _in_rows(call: Call, operands: Operands, result: torch.Tensor | None) -> Operands:
    """Returns what holds rows, the result first; log-probabilities have none, and take x twice."""
    inputs = operands[: 1 + call.backward]
    if result is None:
        return inputs if call.backward else inputs * 2
    return result, *inputs


def described(call: Call, taken: Operands, device: Device, mask: torch.Tensor | None = None) -> tuple[Way, Problem]:
    """Describes a launch on operands like these: whether they are copied first, and the problem of what is launched.

    Args:
        call: what is computed.
        taken: what holds rows, the result first.
        device: where they are.
        mask: of their shape.

    Raises:
        LayoutError: they have more levels than one launch.
    """
    way, taken, lines = arranged(call, taken, device, mask)
    y_dtype = None if call.stores else call.dtype
    problem = problem_from(
        taken, lines, call.form, call.backward, call.batch_invariant, y_dtype, call.scores, mask, call.log_probs
    )
    return way, problem


def _numbers(call: Call, problem: Problem) -> tuple[int, ...]:
    """Returns the kernel's parameters that only scores have: the mask's strides, and the bits of the factor."""
    strides = mask_sizes(problem) if problem.lines and problem.lines.mask and call.scores.mask and not call.backward else ()
    if not call.scores or call.scores.factor == "rows":
        return strides
    number = 1.0 if call.factor is None else call.factor
    if problem.y_dtype == "float64":
        return strides + struct.unpack("<q", struct.pack("<d", number))
    return *strides, int(torch.tensor(number, dtype=torch.float32).view(torch.int32))


def _allocating(launch: Callable[..., None], result: torch.Tensor, n_operands: int, guard: Guard) -> Run:
    """Returns run(*operands), which allocates a result like this one. A function of one argument is called sooner."""
    shape, strides, dtype, empty = tuple(result.shape), result.stride(), result.dtype, allocator(result.device)
    current, number, made_current = guard

    def run(x: torch.Tensor) -> torch.Tensor:
        if current() != number:
            with made_current():
                return run(x)
        y = empty(shape, strides, dtype)
        launch(y, x)
        return y

    def run_more(*operands: torch.Tensor) -> torch.Tensor:
        if current() != number:
            with made_current():
                return run_more(*operands)
        y = empty(shape, strides, dtype)
        launch(y, *operands)
        return y

    return run if n_operands == 1 else run_more


def _writing(launch: Callable[..., None], guard: Guard) -> Run:
    """Returns run(out, *operands), and for log-probabilities run(*operands), which returns its first argument."""
    current, number, made_current = guard

    def run(*given: torch.Tensor) -> torch.Tensor:
        if current() != number:
            with made_current():
                return run(*given)
        launch(*given)
        return given[0]

    return run


def _in_slices(call: Call, writes: bool) -> Run:
    """Returns what launches once for each index of the outermost dimension: x and its mask have more levels than a kernel."""

    def run(*given: torch.Tensor) -> torch.Tensor:
        x = given[1] if writes else given[0]
        out, operands = (given[0], given[1:]) if writes else (x.new_empty(x.shape, dtype=call.dtype), given)
        own = x.dim() - 2 if call.scores.causal else call.dim
        outermost = next(at for at, size in enumerate(x.shape) if size > 1 and at not in (call.dim, own))
        for at in range(x.shape[outermost]):
            part = tuple(_slice(each, x, outermost, at) for each in operands)
            written = out.narrow(outermost, at, 1)
            bound(call, part, written)(written, *part)
        return out

    return run


def _slice(given: torch.Tensor, x: torch.Tensor, outermost: int, at: int) -> torch.Tensor:
    """Returns a slice of x or of what has its shape; or the numbers of the slice's rows, which follow each other."""
    return given.narrow(outermost, at, 1) if given.dim() == x.dim() else given.view(x.shape[outermost], -1)[at]
