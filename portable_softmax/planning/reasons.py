"""The decisions of a plan in sentences, with the sources of their numbers."""

from collections.abc import Iterator

from portable_softmax.devices.backends.base import KernelResources
from portable_softmax.devices.device import Device
from portable_softmax.planning.cost import Terms
from portable_softmax.planning.plan import Tiling
from portable_softmax.planning.problem import Problem


def why(
    problem: Problem, tiling: Tiling, used: KernelResources, num_programs: int, resident: int, device: Device
) -> Iterator[str]:
    """Yields sentences: how rows are read, the tile, num_warps, unknown registers, and num_programs."""
    if problem.unaligned:
        yield f"unaligned: rows start anywhere, and are read in whole vectors of {problem.vector} elements"
    if problem.in_place and device.profile.launch.polls:
        yield "in place: no programs share a row, as one may read again what another has overwritten"
    yield _why_tile(problem, tiling)
    if tiling.num_warps is not None and device.hardware.warp_size:
        elements = tiling.elements / (tiling.num_warps * device.hardware.warp_size)
        whole = "a block" if tiling.reads_splits_twice else "the tile"
        yield f"num_warps {tiling.num_warps}: a thread holds {elements:g} elements of {problem.y_dtype} of {whole}"
        if tiling.num_stages == 1:
            loads = "each tile is loaded once" if tiling.held else "resident programs load in turns"
            yield f"num_stages 1: {loads}, so there is nothing to pipeline"
    if used.registers_per_thread is None and device.hardware.registers_per_multiprocessor:
        yield "registers are estimated: no compiler here tells how many the kernel uses, nor whether it spills some"
    yield _why_programs(problem, tiling, num_programs, resident, device)


def why_faster(terms: Terms, tiling: Tiling, other: Terms, beside: Tiling, launches: int) -> str:
    """Returns the runner-up, and the term by which it is slower."""
    more = {name: getattr(other, name) - getattr(terms, name) for name in Terms._fields}
    most = max(more, key=lambda name: more[name])
    slower = f", as {most} takes {more[most]:.1f} more" if round(other.total - terms.total, 1) > 0 else ", which is alike"
    return f"runner-up of {launches} launches: {beside}: {other.total:.1f} us{slower}"


def _why_tile(problem: Problem, tiling: Tiling) -> str:
    if tiling.strategy == "online":
        times = "twice" if problem.reads_again else "once"
        return f"online: a row of {problem.n_cols} columns is taken {tiling.tile_cols} at a time, and read {times}"
    if tiling.strategy == "shared":
        again = ", and read it twice" if not tiling.held and problem.reads_again else ""
        exchange = ", which exchange max and sum" if problem.pairs else ""
        exchange = ", whose max and sum one launch leaves for another" if tiling.two_launches else exchange
        return (
            f"shared: each row of {problem.n_cols} columns is split over {tiling.splits} programs of "
            f"{tiling.tile_cols}{exchange}{again}"
        )
    rows = "one row" if tiling.tile_rows == 1 else f"{tiling.tile_rows} rows"
    blocks = f"{tiling.blocks} x {tiling.width}" if tiling.blocks > 1 else f"{tiling.tile_cols}"
    whole = problem.n_cols == tiling.tile_cols
    cut = "" if whole and tiling.blocks == 1 else f" {'as' if whole else 'padded to'} {blocks}"
    return f"tile: {rows} per program, read once; {problem.n_cols} columns{cut}"


def _why_programs(problem: Problem, tiling: Tiling, num_programs: int, resident: int, device: Device) -> str:
    tiles = problem.tiles(tiling.tile_rows) * tiling.splits
    grid = device.profile.grid
    if num_programs == tiles:
        number = f"one per tile; {resident} are resident at once"
    elif num_programs < resident or tiling.splits > 1 or grid.value == "tile":
        number = f"the most that one launch may have, for {tiles} tiles"
    else:
        number = f"as many as are resident at once, each walking {tiles / num_programs:.3g} tiles on average"
    chosen = (
        f"{tiling.splits} for each row"
        if tiling.splits > 1
        else f"grid: {grid.value}; {device.profile.sources[grid.source].title}"
    )
    return f"num_programs {num_programs}: {number} ({chosen})"
