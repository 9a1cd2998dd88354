"""The request of a row kernel's launch, and the settings that are candidates: blocks, stages and warps."""

import copy
import itertools
from typing import Any, NamedTuple

from portable_softmax.devices.device import Device
from portable_softmax.planning.problem import next_power_of_2
from portable_softmax.row_kernels.decorators import configurations
from portable_softmax.row_kernels.ttir import Form

BLOCKS = 1024, 16384  # elements of the shortest and the longest block, where a row has several
STAGES = 1, 3, 4  # two hide nothing
MOST_EACH = 64  # elements of a block for each thread


class Request(NamedTuple):
    """Request of a launch.

    Args:
        kernel: with its decorators.
        form: how it goes over rows.
        block: its constexpr of that name.
        arguments: by name, with the constexprs that are given.
        options: of Triton's backend, that are given.
        meta: arguments and options that are the same in each call.
        num_programs: if it is given.
        rows, cols: sizes.
        multiple: elements that the compiler knows each row to begin at a multiple of.
    """

    kernel: Any
    form: Form
    block: str
    arguments: dict[str, Any]
    options: dict[str, Any]
    meta: dict[str, Any]
    num_programs: int | None
    rows: int
    cols: int
    multiple: int


class Setting(NamedTuple):
    """A configuration, with what it gives the block, the loop that is pipelined, and the warps."""

    config: Any
    block: int
    stages: int
    warps: int | None


def settings_of(request: Request, device: Device | None) -> list[Setting]:
    """Returns all configurations, of the autotuner or of powers of two, with all blocks and stages that are not given."""
    import triton

    given, form, whole = request.arguments | request.options, request.form, next_power_of_2(request.cols)
    warp, threads = (device.hardware.warp_size, device.hardware.max_threads_per_program) if device else (None, None)
    warps = _powers(1, (threads or warp) // warp) if warp and "num_warps" not in given else [None]
    blocks = _powers(min(whole, BLOCKS[0]), min(whole, BLOCKS[1])) if form.in_blocks else [whole]
    several = {request.block: blocks} | ({form.stages: STAGES if device else STAGES[:1]} if form.stages else {})
    plain = [triton.Config({}, each, num_stages=None, num_ctas=None) for each in warps]
    found = []
    for base in configurations(request.kernel) or plain:
        computed = {name: values for name, values in several.items() if name not in {**given, **base.kwargs}}
        for values in itertools.product(*computed.values()):
            config = copy.copy(base)
            config.kwargs = {name: value for name, value in base.kwargs.items() if name not in given} | dict(
                zip(computed, values, strict=True)
            )
            every = given | config.all_kwargs()
            found.append(Setting(config, every[request.block], every.get(form.stages, 1), every.get("num_warps")))
    return _of_few_elements(found, warp or 1)


def _of_few_elements(found: list[Setting], warp: int) -> list[Setting]:
    """Returns the settings that give each thread from one to `MOST_EACH` elements, or those that come nearest.

    Where programs have no threads it returns all.
    """
    if all(each.warps is None for each in found):
        return found

    def off(setting: Setting) -> float:
        each = setting.block / (warp * (setting.warps or 1))
        return max(1, each / MOST_EACH, 1 / each)

    least = min(map(off, found))
    return [each for each in found if off(each) == least]


def _powers(least: int, most: int) -> list[int]:
    """Returns the powers of two from one up to another."""
    return [1 << each for each in range(least.bit_length() - 1, most.bit_length())]
