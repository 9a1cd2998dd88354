"""Problem + Device -> LaunchPlan: arithmetic, and a function that tells what a compiled candidate uses.

The first candidate, in order of the profile's preferences, that compiles without spilling and fits the device is taken.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

from portable_softmax.backends.base import KernelResources, Occupancy
from portable_softmax.device import Device
from portable_softmax.errors import CompileError, PlanError

NARROWEST_ONLINE_TILE = 1024  # columns; below it a candidate is not worth compiling
COALESCED = 32  # elements of a line of a tile, where rows lie side by side: 128 bytes of float32
NARROWEST_LINE = 8  # of them: 32 bytes of float32, the least that memory moves
MANY_ROWS = 2**31  # what a batch-invariant tile is chosen for
SIXTEEN_BITS = ("float16", "bfloat16")
FORMS = ("softmax", "log_softmax", "softmin")


@dataclass(frozen=True)
class Problem:
    """The softmax of rows, or its gradient, as far as a kernel depends on it.

    Args:
        n_rows, n_cols: of all rows, and of one; at least 1.
        x_dtype, y_dtype: of the input (and its gradient) and of the output (and its gradient), torch's names.
        vector: elements that divide the length and the strides of all lines, at most what 16 bytes hold.
        aligned: whether all operands start on a multiple of 16 bytes.
        form: one of FORMS.
        backward: the gradient of x from that of y, and y.
        inner: 1 where the elements of a row are next to each other; else so many rows lie side by side, as in a
            contiguous [n_rows // inner, n_cols, inner] tensor.
        batch_invariant: whether the tile must not depend on n_rows.
    """

    n_rows: int
    n_cols: int
    x_dtype: str
    y_dtype: str
    vector: int
    aligned: bool = True
    form: str = "softmax"
    backward: bool = False
    inner: int = 1
    batch_invariant: bool = False

    @property
    def registers_per_element(self) -> int:
        """Of one operand; that a gradient has two is left to the compiler, which may spill, and to the next candidate."""
        return 2 if self.y_dtype == "float64" else 1

    @property
    def elements_at_once(self) -> float:
        """Of those that a thread should hold: half where it must load them one by one, each with an address of its own."""
        return 0.5 if self.vector == 1 else 1.0

    @property
    def across(self) -> bool:
        return self.inner > 1

    @property
    def name(self) -> str:
        return f"gradient of a {self.y_dtype} {self.form}" if self.backward else f"{self.y_dtype} {self.form}"

    def tiles(self, tile_rows: int) -> int:
        """Of so many rows, which cover all."""
        if self.across:
            return self.n_rows // self.inner * -(-self.inner // tile_rows)
        return -(-self.n_rows // tile_rows)


@dataclass(frozen=True)
class Tiling:
    """A candidate: how rows are cut into tiles, and how a program works on one."""

    strategy: str  # tile: a row is read once; online: in several tiles, twice
    tile_rows: int
    tile_cols: int
    num_warps: int | None
    num_stages: int | None

    def __str__(self) -> str:
        warps = "" if self.num_warps is None else f", num_warps {self.num_warps}"
        return f"{self.strategy} {self.tile_rows} x {self.tile_cols}{warps}"


@dataclass(frozen=True)
class LaunchPlan:
    """How one softmax is launched, and why.

    Args:
        strategy: "tile" (a row is read once) or "online" (longer rows, read twice).
        tile_rows, tile_cols: elements of a tile, powers of two.
        num_warps, num_stages: Triton's options; None where the vendor has no such thing.
        num_programs: size of the one-dimensional grid.
        resources: what a program of the compiled kernel uses.
        occupancy: programs per multiprocessor, and what limits them.
        reasons: the decisions in order, in words.
    """

    strategy: str
    tile_rows: int
    tile_cols: int
    num_warps: int | None
    num_stages: int | None
    num_programs: int
    resources: KernelResources
    occupancy: Occupancy
    reasons: tuple[str, ...]

    @property
    def tiling(self) -> Tiling:
        return Tiling(self.strategy, self.tile_rows, self.tile_cols, self.num_warps, self.num_stages)


def choose(problem: Problem, device: Device, measure: Callable[[Problem, Tiling, Device], KernelResources]) -> LaunchPlan:
    """The launch of `problem` on `device`; `measure` compiles a candidate and reads what it uses.

    Raises:
        PlanError: no candidate compiles, keeps its registers and fits; lists them all.
    """
    passed_over = []
    alone = None
    for tiling in candidates(problem, device):
        if alone and (tiling.tile_rows, tiling.tile_cols) != (alone[0].tile_rows, alone[0].tile_cols):
            break
        try:
            resources = measure(problem, tiling, device)
        except CompileError as error:
            passed_over.append(f"{tiling}: does not compile: {error}")
            continue
        occupancy = device.vendor.occupancy(resources, device.hardware)
        if resources.spilled_bytes_per_thread:
            passed_over.append(f"{tiling}: spills {resources.spilled_bytes_per_thread} bytes per thread")
        elif not occupancy.programs_per_multiprocessor:
            passed_over.append(f"{tiling}: does not fit: {', '.join(occupancy.limited_by)}")
        elif occupancy.programs_per_multiprocessor == 1 and tiling.num_warps:
            # Nothing else runs while its only program waits: another number of warps may let two in.
            alone = alone or (tiling, resources, occupancy, tuple(passed_over))
            passed_over.append(f"{tiling}: would be alone on its multiprocessor")
        else:
            return _launch(problem, tiling, device, resources, occupancy, passed_over)
    if alone:
        return _launch(problem, alone[0], device, alone[1], alone[2], alone[3])
    raise PlanError(
        f"no launch of a {problem.name} of {problem.n_rows} x {problem.n_cols} fits {device}; tried:\n  "
        + "\n  ".join(passed_over)
    )


def candidates(problem: Problem, device: Device) -> Iterator[Tiling]:
    """Tilings in order of preference: whole rows, fewer of them, with more warps; then rows in ever narrower tiles."""
    if problem.across:
        yield from _candidates_across(problem, device)
        return
    policy = device.profile.launch
    width = problem.registers_per_element
    tile_cols = max(next_power_of_2(problem.n_cols), problem.vector)
    if tile_cols * width <= policy.max_tile_cols.value:
        n_rows = MANY_ROWS if problem.batch_invariant else problem.n_rows
        tile_rows = _shared_rows(n_rows, tile_cols * width / problem.elements_at_once, device)
        yield from _prefetching(problem, tile_rows, tile_cols, device)
        while tile_rows:
            yield from _with_warps("tile", tile_rows, tile_cols, problem, device)
            tile_rows //= 2
    tile_cols = min(policy.online_tile_cols.value // width, next_power_of_2(problem.n_cols))
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


def _prefetching(problem: Problem, tile_rows: int, tile_cols: int, device: Device) -> Iterator[Tiling]:
    """While a 16-bit row fills the registers with its 32-bit copy, nothing overlaps but the next rows' loads."""
    policy = device.profile.launch
    if not policy.prefetch_from_cols or not policy.prefetch_stages or problem.y_dtype not in SIXTEEN_BITS or problem.backward:
        return
    if tile_cols >= policy.prefetch_from_cols.value:
        for tiling in _with_warps("tile", tile_rows, tile_cols, problem, device):
            yield replace(tiling, num_stages=policy.prefetch_stages.value)


def _shared_rows(n_rows: int, row_registers: float, device: Device) -> int:
    """Rows of a tile: short rows share one, as long as every multiprocessor still gets a tile."""
    share = -(-n_rows // (device.hardware.multiprocessor_count or 1))
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
    for num_warps in sorted({wanted, min(2 * wanted, most)}):
        yield Tiling(strategy, tile_rows, tile_cols, num_warps, num_stages)


def _launch(
    problem: Problem,
    tiling: Tiling,
    device: Device,
    resources: KernelResources,
    occupancy: Occupancy,
    passed_over: Iterable[str],
) -> LaunchPlan:
    tiles = problem.tiles(tiling.tile_rows)
    resident = (device.hardware.multiprocessor_count or 1) * occupancy.programs_per_multiprocessor
    walking = device.profile.launch.grid.value == "resident" or (tiling.num_stages or 1) > 1  # what prefetches has to walk
    num_programs = min(tiles, resident if walking else tiles, device.hardware.max_programs or tiles)
    return LaunchPlan(
        strategy=tiling.strategy,
        tile_rows=tiling.tile_rows,
        tile_cols=tiling.tile_cols,
        num_warps=tiling.num_warps,
        num_stages=tiling.num_stages,
        num_programs=num_programs,
        resources=resources,
        occupancy=occupancy,
        reasons=(
            *(f"passed over {what}" for what in passed_over),
            _why_tile(problem, tiling, device),
            *_why_warps(problem, tiling, device),
            _why_programs(tiles, resident, num_programs, tiling, device),
        ),
    )


def _why_tile(problem: Problem, tiling: Tiling, device: Device) -> str:
    limit = device.profile.launch.max_tile_cols.value // problem.registers_per_element
    if tiling.strategy == "online":
        return (
            f"{tiling.strategy}: a row of {problem.n_cols} columns is taken in tiles of {tiling.tile_cols} and read twice "
            f"(rows of up to {limit} columns of {problem.y_dtype} are taken at once here)"
        )
    rows = "a row is" if tiling.tile_rows == 1 else f"{tiling.tile_rows} rows are"
    return f"{tiling.strategy}: {rows} read once, as a tile of {tiling.tile_rows} x {tiling.tile_cols}"


def _why_warps(problem: Problem, tiling: Tiling, device: Device) -> Iterator[str]:
    if tiling.num_warps is not None and device.hardware.warp_size:
        elements = tiling.tile_rows * tiling.tile_cols / (tiling.num_warps * device.hardware.warp_size)
        yield f"num_warps {tiling.num_warps}: a thread holds {elements:g} elements of {problem.y_dtype} of the tile"


def _why_programs(tiles: int, resident: int, num_programs: int, tiling: Tiling, device: Device) -> str:
    rule = f"grid: {device.profile.launch.grid.value}", device.profile.policy_origins["grid"]
    if (tiling.num_stages or 1) > 1:
        rule = f"loads {tiling.num_stages} stages ahead", device.profile.policy_origins["prefetch_stages"]
    if num_programs < tiles:
        why = f"as many as are resident at once, each walking {tiles / num_programs:.3g} tiles on average"
        if num_programs < resident:
            why = f"the most that one launch may have, for {tiles} tiles"
    else:
        why = f"one per tile; {resident} are resident at once"
    return f"num_programs {num_programs}: {why} ({rule[0]}; {rule[1].title})"


def next_power_of_2(value: int) -> int:
    return 1 << (value - 1).bit_length()
