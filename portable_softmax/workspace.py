"""Memory in which programs that share a row tell each other what they found; see exchange.py."""

from collections.abc import Callable, Sequence
from typing import Any

import torch

from portable_softmax.device import Device
from portable_softmax.errors import DeviceError
from portable_softmax.problem import Problem, Tiling

_kept: dict[tuple[Any, ...], torch.Tensor] = {}


def with_words(
    launches: Sequence[Callable[..., Any]], problem: Problem, tiling: Tiling, device: Device, where: torch.device
) -> Callable[..., Any]:
    """`launch(grid, *arguments)` of a tiling's launches, one after the other, with the words that they share.

    Raises, when it is called:
        DeviceError: fewer programs can run at once than the device's facts tell.
    """
    n_rows, parts = problem.n_rows, tiling.parts

    def split(grid: tuple[int, int, int], *arguments: Any) -> None:
        words = torch.empty(n_rows * parts, dtype=torch.int64, device=where)
        for launch in launches:
            launch(grid, *arguments, words)

    def cooperative(grid: tuple[int, int, int], *arguments: Any) -> None:
        words = _words_of_groups(grid[0] // parts, parts, device, where)
        try:
            launches[0](grid, *arguments, words)
        except RuntimeError as error:
            raise DeviceError(
                f"{grid[0]} programs that wait for each other were to run at once on {device}; the driver refused: {error}; "
                "does something else limit the device for this process (a partition of it, a debugger)?"
            ) from error

    def ordered(grid: tuple[int, int, int], *arguments: Any) -> None:
        launches[0](grid, *arguments, _words_of_groups(grid[0] // parts, parts, device, where))

    return {"cooperative": cooperative, "ordered": ordered, "split": split}[tiling.strategy]


def _words_of_groups(groups: int, parts: int, device: Device, where: torch.device) -> torch.Tensor:
    """For the current stream: launches on it follow each other, and leave the words as the next needs them.

    A graph that is being captured gets its own, zeroed whenever it is replayed.
    """
    from triton.runtime import driver

    if getattr(torch, where.type).is_current_stream_capturing():
        return _new_words(groups, parts, device, where)
    key = parts, where, driver.active.get_current_stream(where.index)
    words = _kept.get(key)
    if words is None or words.numel() < groups * _words_of_one(parts):
        words = _kept[key] = _new_words(groups, parts, device, where)
    return words


def _new_words(groups: int, parts: int, device: Device, where: torch.device) -> torch.Tensor:
    """Enough for as many groups as any kernel can have resident, and for these."""
    hardware = device.hardware
    programs = (hardware.multiprocessor_count or 0) * (hardware.max_warps_per_multiprocessor or 0)
    return torch.zeros(max(groups, programs // parts) * _words_of_one(parts), dtype=torch.int64, device=where)


def _words_of_one(parts: int) -> int:
    """Group: the number of its rounds, and two buffers."""
    return 1 + 2 * parts
