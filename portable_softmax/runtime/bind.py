"""Loads kernels onto a device, and binds them to sizes and workspace: a launch is a call with operands."""

import functools
import itertools
import secrets
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from typing import Any, TypeVar

import torch
from torch import Tensor

from portable_softmax.devices.device import Device
from portable_softmax.planning.plan import LaunchPlan
from portable_softmax.planning.problem import Problem
from portable_softmax.planning.tiling import Tiling
from portable_softmax.runtime.compile import compiled, triton_version
from portable_softmax.runtime.kernel import Kernel, kernels_of

Result = TypeVar("Result")
Grid = tuple[int, int, int]
Run = Callable[[Grid, Sequence[Any]], Any]  # launches a kernel on all of its arguments in order, values of constexprs too
Sizes = Mapping[str, int] | None

PACKED = 1024  # ids that a program packs into bits
# Both halves of a launch's tag, read as float32, lie from 2**64 on: so large are few elements of any other tensor, and
# none of zeroed memory. Both grow from launch to launch, and repeat after 2**26 launches.
_LEAST, _SPAN, _STEP = 0x5F800000, 2**28, 3 << 32 | 1
_first = (_LEAST + secrets.randbelow(_SPAN)) << 32 | _LEAST + secrets.randbelow(_SPAN)
_tags = itertools.repeat(range(_first, _first + 2**26 * _STEP, _STEP))
# Returns the tag of one launch, a positive number of 64 bits.
next_tag: Callable[[], int] = itertools.chain.from_iterable(_tags).__next__
_loading = threading.Lock()
ONE_LAUNCH = threading.RLock()  # the interpreter patches Triton's language, and keeps a program's number, for all threads


@functools.lru_cache(maxsize=4096)  # a new number of rows of a known bucket needs them as they are
def loaded(problem: Problem, tiling: Tiling, device: Device) -> list[tuple[Kernel, Run]]:
    """Returns the kernels of a tiling on a device, two for one of two launches; raises the errors of `compiled`."""
    return [(kernel, load(kernel, device)) for kernel in kernels_of(problem, tiling, device)]


def load(kernel: Kernel, device: Device) -> Run:
    """Compiles a kernel, loads it onto a device, and returns its launch on the current stream.

    What does not change is looked up once; while profilers' hooks are set, Triton does all of it.
    """
    if device.backend == "interpreter":
        return functools.partial(_interpreted, kernel)
    binary, version, index = compiled(kernel, device), triton_version(), device.index
    with _loading, made_current(device):
        binary._init_handles()  # Triton itself would let a second thread see half of it, or a launcher without a function
    if version < (3, 5):
        passed = kernel.at_run_time if version < (3, 3) else list  # a compiled kernel is called with its constexprs too
        return lambda grid, arguments: binary[grid](*passed(arguments))
    from triton import knobs
    from triton.runtime import driver

    entering, leaving = knobs.runtime.launch_enter_hook.calls, knobs.runtime.launch_exit_hook.calls  # profilers add to them
    run, current_stream, handles = binary.run, driver.active.get_current_stream, (binary.function, binary.packed_metadata)

    def launch(grid: Grid, arguments: Sequence[Any]) -> None:
        if entering or leaving:
            binary[grid](*arguments)
        else:  # these nine arguments are the first from Triton 3.2 to 3.9
            run(*grid, current_stream(index), *handles, None, None, None, *arguments)

    return launch


def _interpreted(kernel: Kernel, grid: Grid, arguments: Sequence[Any]) -> None:
    """Calls a kernel in the interpreter, which truncates to bfloat16: torch rounds such a result, the first operand."""
    import numpy as np

    result, *others = arguments
    stored = result
    if result.dtype is torch.bfloat16:
        stored = torch.empty_strided(result.shape, result.stride(), dtype=torch.float32)
    with ONE_LAUNCH, np.errstate(all="ignore"):  # a GPU does not warn of nan either
        kernel.function[grid](stored, *others)
    if stored is not result:
        result.copy_(stored)


def bind(
    plan: LaunchPlan, kernels: Sequence[tuple[Kernel, Run]], where: torch.device, sizes: Sizes = None
) -> Callable[..., None]:
    """Returns a launch of one kernel, or of two of which the first reduces splits, on operands in their order.

    It is on the current stream of the device, which must be the current one (`on_device`). Words for the splits of rows belong
    to a call: they are allocated on that stream, as its result is, and have a tag of their own. A graph replays a launch with
    the same tag, so while one is captured they are cleared on the stream too; a second kernel reads what the first one wrote.

    Args:
        plan, kernels: what is computed and how.
        where: the device of the operands; absent ones are None.
        sizes: n_ids and ignored of log-probabilities, by name.
    """
    problem, tiling, grid, (first, run) = plan.problem, plan.tiling, (plan.num_programs, 1, 1), kernels[0]
    values = {**_sizes_of(problem, first.config), **(sizes or {})}
    last = [values.get(name, constexpr) for name, constexpr in first.parameters[len(first.operands) :]]
    if "words_ptr" not in first.types:
        return lambda *operands: run(grid, (*operands, *last))
    assert [first.parameters[at][0] for at in (len(first.operands), -2)] == ["words_ptr", "tag"], "sizes are between them"
    n_words = 4 * tiling.splits * problem.tiles(tiling.tile_rows) * tiling.tile_rows
    is_capturing = getattr(getattr(torch, where.type), "is_current_stream_capturing", bool)
    steps = [(run, kernel.parameters[-1][1]) for kernel, run in kernels]

    def launch(*operands: Any) -> None:
        words, tag = torch.empty(n_words, dtype=torch.int64, device=where), next_tag()
        if len(steps) == 1 and is_capturing():
            words.zero_()
        for run, config in steps:
            run(grid, (*operands, words, *last[1:-2], tag, config))

    return launch


def _sizes_of(problem: Problem, config: Any) -> dict[str, int]:
    """Returns the values of kernels' integer parameters by name, in the units in which they are passed."""
    assert problem.levels, "the problem of a bucket has no strides, and is not launched"
    (_, (_, batch, *_)), (n_heads, (_, head, *_)), (n_lines, (_, step, *_)), _ = problem.levels
    n_queries, query, col = (problem.inner, 1, step) if problem.across else (n_lines, step, 1)
    sizes = {"n_rows": problem.n_rows, "n_cols": problem.n_cols // config.ROW_UNIT}
    sizes |= {"n_heads": n_heads, "n_queries": n_queries // config.COL_UNIT}
    sizes |= {"x_batch": batch // config.UNIT, "x_head": head // config.UNIT}
    sizes |= {"x_query": query // config.ROW_UNIT, "x_col": col // config.COL_UNIT}
    if config.MASK:
        unit, (batch, head, line, element) = config.MASK_UNIT, (strides[-1] for _, strides in problem.levels)
        col, query = (line, element) if problem.across else (element, line // unit)
        sizes |= {"m_col": col, "m_query": query, "m_head": head // unit, "m_batch": batch // unit}
    return sizes


def made_current(device: Device) -> Any:
    """Returns a context in which a device is the current one; one that is not here, or the interpreter, changes nothing."""
    if device.index is None:
        return nullcontext()
    return getattr(torch, device.vendor.torch_device_type).device(device.index)


def on_device(call: Callable[..., Result], device: Device) -> Callable[..., Result]:
    """Returns a call of launches and allocations while the device is the current one; a single device always is."""
    if device.index is None or getattr(torch, device.vendor.torch_device_type).device_count() == 1:
        return call

    def within(*arguments: Any, **named: Any) -> Result:
        with made_current(device):
            return call(*arguments, **named)

    return within


def pack(ids: Tensor, n_cols: int) -> Tensor:
    """Returns a mask of n_cols bits, int32 [..., ceil(n_cols / 32)], of int64 ids [..., K]; its device is the current one."""
    from portable_softmax.kernels.scores import pack_kernel  # slow to import

    n_words = -(-n_cols // 32)
    words = torch.zeros((*ids.shape[:-1], n_words), dtype=torch.int32, device=ids.device)
    pack_kernel[(-(-ids.numel() // PACKED),)](words, ids, ids.numel(), ids.shape[-1], n_cols, n_words, PACKED)
    return words
