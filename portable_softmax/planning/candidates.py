"""The candidates of a plan: how rows may be cut into tiles, in the order of a profile's preferences."""

from collections.abc import Iterator

from portable_softmax.devices.device import Device
from portable_softmax.planning.holding import in_pieces
from portable_softmax.planning.plan import Tiling
from portable_softmax.planning.problem import Problem, next_power_of_2
from portable_softmax.planning.sharing import in_parts

NARROWEST_ONLINE_TILE = 1024  # columns; below it a candidate is not worth compiling
COALESCED = 32  # elements of a line of a tile, where rows lie side by side: 128 bytes of float32
NARROWEST_LINE = 8  # of them: 32 bytes of float32, the least that memory moves
MANY_ROWS = 2**31  # what a batch-invariant tile is chosen for


def candidates(problem: Problem, device: Device) -> Iterator[Tiling]:
    """Tilings in order of preference: whole rows, fewer of them, with more warps; then rows in ever narrower tiles."""
    if problem.across:
        yield from _candidates_across(problem, device)
        return
    policy = device.profile.launch
    width = problem.registers_per_element
    yield from in_parts(problem, device)
    tile_cols = next_power_of_2(problem.width)
    if tile_cols * width <= policy.max_tile_cols.value:
        n_rows = MANY_ROWS if problem.batch_invariant else problem.n_rows
        held = tile_cols * width * (2 if problem.backward else 1) / problem.elements_at_once
        tile_rows = 1 if problem.ragged else _shared_rows(n_rows, held, device)
        while tile_rows:
            yield from _with_warps("tile", tile_rows, tile_cols, problem, device)
            tile_rows //= 2
    tile_cols = min(policy.online_tile_cols.value // width, next_power_of_2(problem.width))
    while tile_cols >= min(NARROWEST_ONLINE_TILE, problem.n_cols):
        yield from _with_warps("online", 1, tile_cols, problem, device)
        tile_cols //= 2


def _candidates_across(problem: Problem, device: Device) -> Iterator[Tiling]:
    """Where rows lie side by side, a tile's lines should fill whole accesses before its rows are whole."""
    policy = device.profile.launch
    width = problem.registers_per_element
    lines = next_power_of_2(problem.inner)
    tile_cols = next_power_of_2(problem.n_cols)
    tile_rows = min(lines, max(COALESCED, _shared_rows(problem.n_rows, tile_cols * width, device)))
    while tile_rows >= min(NARROWEST_LINE, lines):
        if tile_cols * tile_rows * width <= policy.max_tile_cols.value:
            yield from _with_warps("tile", tile_rows, tile_cols, problem, device)
        tile_rows //= 2
    tile_rows = min(lines, COALESCED)
    tile_cols = min(max(1, policy.online_tile_cols.value // (width * tile_rows)), tile_cols)
    while tile_cols * tile_rows >= min(NARROWEST_ONLINE_TILE, tile_rows * problem.n_cols):
        yield from _with_warps("online", tile_rows, tile_cols, problem, device)
        tile_cols //= 2


def _shared_rows(n_rows: int, row_registers: float, device: Device) -> int:
    """Rows of a tile: short rows share one, as long as every multiprocessor still gets half of the programs that it holds.

    Source: scripts/tune.py on one H200, 2026-11-21: float32 (4096, 256) 1254 GB/s with 2 rows, 1168 with 4.
    """
    hardware = device.hardware
    programs = (hardware.multiprocessor_count or 1) * max(1, (hardware.max_programs_per_multiprocessor or 1) // 2)
    share = -(-n_rows // programs)
    return min(max(1, int(device.profile.launch.tile_elements.value // row_registers)), next_power_of_2(share))


def _with_warps(strategy: str, tile_rows: int, tile_cols: int, problem: Problem, device: Device) -> Iterator[Tiling]:
    policy, hardware = device.profile.launch, device.hardware
    if not policy.elements_per_thread or not hardware.warp_size or not hardware.max_threads_per_program:
        yield Tiling(strategy, tile_rows, tile_cols, None, None)
        return
    num_stages = policy.num_stages.value if policy.num_stages else 1
    most = hardware.max_threads_per_program // hardware.warp_size
    registers = tile_rows * tile_cols * problem.registers_per_element / problem.elements_at_once
    threads = registers / policy.elements_per_thread.value
    wanted = min(most, next_power_of_2(max(1, round(threads / hardware.warp_size))))
    tilings = [Tiling(strategy, tile_rows, tile_cols, each, num_stages) for each in sorted({wanted, min(2 * wanted, most)})]
    if strategy == "tile" and not problem.across:
        yield from in_pieces(tilings, problem, device)
    yield from tilings
