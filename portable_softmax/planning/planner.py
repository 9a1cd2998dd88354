"""Problem + Device -> LaunchPlan: arithmetic, and a function that tells what a compiled candidate uses.

The first candidate, in order of the profile's preferences, that compiles without spilling and fits the device is taken.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from portable_softmax.devices.backends.base import KernelResources, Occupancy
from portable_softmax.devices.device import Device
from portable_softmax.errors import CompileError, PlanError
from portable_softmax.planning.candidates import candidates
from portable_softmax.planning.plan import LaunchPlan, Tiling
from portable_softmax.planning.problem import Problem

UNLIMITED = 2**63 - 1


def choose(problem: Problem, device: Device, measure: Callable[[Problem, Tiling, Device], KernelResources]) -> LaunchPlan:
    """The launch of `problem` on `device`; `measure` compiles a candidate and reads what it uses.

    Raises:
        PlanError: no candidate compiles, keeps its registers and fits; lists them all.
    """
    passed_over = []
    alone = None
    for candidate in candidates(problem, device):
        tiling = replace(candidate, walk=_walks(problem, candidate, device))
        if alone and _kind(tiling) != _kind(alone[0]):
            break
        try:
            resources = measure(problem, tiling, device)
        except CompileError as error:
            passed_over.append(f"{tiling}: does not compile: {error}")
            continue
        occupancy = device.vendor.occupancy(resources, device.hardware)
        resident = (device.hardware.multiprocessor_count or 1) * occupancy.programs_per_multiprocessor
        if resources.spilled_bytes_per_thread > _may_spill(tiling, device):
            passed_over.append(f"{tiling}: spills {resources.spilled_bytes_per_thread} bytes per thread")
        elif not occupancy.programs_per_multiprocessor:
            passed_over.append(f"{tiling}: does not fit: {', '.join(occupancy.limited_by)}")
        elif min(resident, _most_programs(tiling, device)) < tiling.parts:
            most = min(resident, _most_programs(tiling, device))
            passed_over.append(f"{tiling}: only {most} programs are resident at once")
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
    groups = min(tiles, _most_programs(tiling, device) // tiling.parts)
    if tiling.parts == 1 and device.profile.launch.grid.value == "resident":
        groups = min(groups, resident)  # each walks over as many tiles as the others
    num_programs = groups * tiling.parts
    return LaunchPlan(
        strategy=tiling.strategy,
        tile_rows=tiling.tile_rows,
        tile_cols=tiling.tile_cols,
        parts=tiling.parts,
        max_registers=tiling.max_registers,
        pieces=tiling.pieces,
        walk=tiling.walk,
        num_warps=tiling.num_warps,
        num_stages=tiling.num_stages,
        num_programs=num_programs,
        resources=resources,
        occupancy=occupancy,
        reasons=(
            *(f"passed over {what}" for what in passed_over),
            _why_tile(problem, tiling, device),
            *_why_warps(problem, tiling, device),
            _why_programs(tiles * tiling.parts, resident, num_programs, tiling, device),
        ),
    )


def _kind(tiling: Tiling) -> tuple[str, int, int]:
    """What candidates that differ in their warps alone have in common; of a row in pieces, warps choose the length."""
    return tiling.strategy, tiling.tile_rows, tiling.tile_cols if tiling.pieces == 1 else 0


def _may_spill(tiling: Tiling, device: Device) -> int:
    """Bytes per thread: none, but where a kernel is held to fewer registers than it would take."""
    allowed = device.profile.launch.spilled_bytes
    return allowed.value if allowed and tiling.max_registers else 0


def _walks(problem: Problem, tiling: Tiling, device: Device) -> bool:
    """Tells whether there are fewer programs than tiles: by the profile's choice, or since a launch has no more."""
    resident = tiling.parts == 1 and device.profile.launch.grid.value == "resident"
    return resident or problem.tiles(tiling.tile_rows) * tiling.parts > _most_programs(tiling, device)


def _most_programs(tiling: Tiling, device: Device) -> int:
    """Programs that one launch may have; the kernel walks through what is left."""
    hardware = device.hardware
    threads = tiling.num_warps * (hardware.warp_size or 1) if tiling.num_warps else hardware.max_threads_per_program or 1
    limits = hardware.max_programs, hardware.max_threads and hardware.max_threads // threads
    return min((limit for limit in limits if limit), default=UNLIMITED)


def _why_tile(problem: Problem, tiling: Tiling, device: Device) -> str:
    limit = device.profile.launch.max_tile_cols.value // problem.registers_per_element
    if tiling.strategy == "online":
        return (
            f"{tiling.strategy}: a row of {problem.n_cols} columns is taken in tiles of {tiling.tile_cols} and read twice "
            f"(rows of up to {limit} columns of {problem.y_dtype} are taken at once here)"
        )
    if tiling.parts > 1:
        return (
            f"{tiling.strategy}: {problem.n_rows} rows of {problem.n_cols} columns are shared by {tiling.parts} programs each, "
            f"which take a tile of {tiling.tile_cols} and tell each other what they find "
            f"({device.profile.policy_origins['shared_tile_cols'].title})"
        )
    rows = "a row is" if tiling.tile_rows == 1 else f"{tiling.tile_rows} rows are"
    pieces = f", in {tiling.pieces} pieces of {tiling.tile_cols // tiling.pieces}" if tiling.pieces > 1 else ""
    return f"{tiling.strategy}: {rows} read once, as a tile of {tiling.tile_rows} x {tiling.tile_cols}{pieces}"


def _why_warps(problem: Problem, tiling: Tiling, device: Device) -> Iterator[str]:
    if tiling.num_warps is not None and device.hardware.warp_size:
        elements = tiling.tile_rows * tiling.tile_cols / (tiling.num_warps * device.hardware.warp_size)
        yield f"num_warps {tiling.num_warps}: a thread holds {elements:g} elements of {problem.y_dtype} of the tile"


def _why_programs(tiles: int, resident: int, num_programs: int, tiling: Tiling, device: Device) -> str:
    rule = f"grid: {device.profile.launch.grid.value}", device.profile.policy_origins["grid"]
    if tiling.parts > 1:
        rule = f"{tiling.parts} for each row", device.profile.policy_origins["shared_tile_cols"]
    if num_programs == tiles:
        why = f"one per tile; {resident} are resident at once"
    elif num_programs < resident or tiling.parts > 1 or device.profile.launch.grid.value == "tile":
        why = f"the most that one launch may have, for {tiles} tiles"
    else:
        why = f"as many as are resident at once, each walking {tiles / num_programs:.3g} tiles on average"
    return f"num_programs {num_programs}: {why} ({rule[0]}; {rule[1].title})"
