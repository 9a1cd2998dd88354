"""The kernel of a specialization and its config: everything that it is compiled for, except the types of its operands."""

from typing import TYPE_CHECKING, Any

from portable_softmax.devices.backends.base import DTYPE_BYTES
from portable_softmax.devices.device import Device
from portable_softmax.planning.candidates import holds_as_loaded
from portable_softmax.planning.problem import Problem, next_power_of_2
from portable_softmax.runtime.specialization import KernelSpec

if TYPE_CHECKING:
    from portable_softmax.kernels.config import KernelConfig

GROUP = 8  # columns that share a random number, of every type: what a token depends on, so no other number is compatible
MANY_BLOCKS = 16  # of a row: from here on LLVM keeps the places of their loads for their stores
KINDS = {None: "", "number": "number", "rows": "row"}  # of a factor: as planning and as kernels name them


def kernel_of(spec: KernelSpec) -> Any:
    """Returns the @triton.jit function. Importing the first one is slow, so this is called when it is compiled."""
    from portable_softmax.kernels import log_probs, sample, softmax

    module = sample if spec.problem.is_sample else log_probs if spec.problem.log_probs else softmax
    return getattr(module, spec.kernel_name)


def signature_of(spec: KernelSpec) -> dict[str, str]:
    """Returns Triton's types of the kernel's run-time parameters, by name and in its order."""
    return spec.signature(tuple(kernel_of(spec).arg_names))


def constexprs_of(spec: KernelSpec, device: Device) -> dict[str, Any]:
    """Returns the values of the kernel's constexprs, by name. A parameter that a launch does not have is the constexpr None."""
    from portable_softmax.kernels.config import InKernel

    return {**spec.constants(tuple(kernel_of(spec).arg_names)), "C": InKernel(config_of(spec, device))}


def config_of(spec: KernelSpec, device: Device) -> "KernelConfig":
    """Returns everything that the kernel is compiled for, except the types of its operands."""
    from portable_softmax.kernels.config import KernelConfig

    problem, tiling, picks = spec.problem, spec.tiling, spec.problem.log_probs
    threads, polls = _most_threads(spec, device), device.profile.launch.polls
    gradient, hides = picks is not None and picks.gradient, problem.across or tiling.is_shared or tiling.blocks > MANY_BLOCKS
    row_unit, col_unit, unit = units_of(problem)
    scores = problem.scores
    return KernelConfig(
        LOG=problem.form == "log_softmax" and not picks,
        EXACT=DTYPE_BYTES[problem.y_dtype] > 2 and device.vendor.fuses,
        FUSED=device.vendor.fuses,
        ENTROPY=bool(picks and picks.entropy),
        LSE=bool(picks and picks.lse),
        MANY=bool(picks and picks.many),
        SKIP=spec.skip,
        AXIS=0 if problem.across else 1,
        LEVELS=problem.depth,
        HEAD_TILES=_has_head_tiles(problem),
        WIDE=spec.wide,
        OUT_LIKE_X=spec.out_like_x,
        VECTOR=problem.vector,
        UNALIGNED=problem.unaligned,
        ROW_UNIT=row_unit,
        COL_UNIT=col_unit,
        UNIT=unit,
        ROWS=tiling.tile_rows,
        BLOCK=tiling.width,
        BLOCKS=tiling.blocks,
        WHOLE=spec.whole,
        IN_REGISTERS=tiling.held and not gradient and not spec.step,
        GROUP=min(GROUP, tiling.width) if picks and not gradient and (device.vendor.fuses or picks.sample) else 0,
        ACCUMULATORS=_accumulators(spec, threads),
        HIDE=f"={device.vendor.register},0" if hides and device.vendor.register else "",
        AS_LOADED=f"={device.vendor.vector_register},0" if holds_as_loaded(problem, tiling, device) else "",
        WALK=tiling.walk,
        SPLITS=tiling.splits,
        WORDS_READ=max(threads // tiling.tile_rows, next_power_of_2(tiling.splits), 1) if tiling.is_shared else 1,
        POLLS=polls.value if polls else 1,
        ATOMIC_POLL=device.vendor.poll == "atomic",
        STEP=spec.step,
        SCALE=KINDS[scores.scale],
        TEMPERATURE=KINDS[scores.temperature],
        CAP=scores.cap or 0.0,
        **_of_samples(problem, device),
        **_of_gradient(spec) if problem.backward else _of_mask(spec, threads),
    )


def units_of(problem: Problem) -> tuple[int, int, int]:
    """Returns the elements in which kernels take lengths and strides of rows, of columns, and strides of matrices."""
    along = problem.vector if not problem.across and not problem.unaligned else 1
    return along, problem.vector if problem.across else 1, 1 if problem.unaligned else problem.vector


def _has_head_tiles(problem: Problem) -> bool:
    """True if a tile has rows of one head: rows side by side, and rows with a mask or numbers per head."""
    return not problem.scattered if problem.across else problem.numbered and problem.depth > 1


def _most_threads(spec: KernelSpec, device: Device) -> int:
    """Returns the threads of a program, or the most that it may have if the vendor's compiler chooses its warps."""
    if spec.tiling.num_warps is None:
        return device.hardware.max_threads_per_program or 1
    return spec.tiling.num_warps * (device.hardware.warp_size or 1)


def _accumulators(spec: KernelSpec, threads: int) -> int:
    """Returns how many columns of a block are in different threads: a thread has one number for all of its columns.

    Threads are spread over adjacent elements first. Without threads a gradient adds up whole blocks, and a softmax reduces
    every block.
    """
    tiling, width = spec.tiling, spec.tiling.width
    if tiling.num_warps is None:
        return width if spec.problem.backward else 1
    read = threads * spec.problem.vector  # elements at once
    return min(width, max(1, read // tiling.tile_rows if spec.problem.across else read))


def _of_gradient(spec: KernelSpec) -> dict[str, Any]:
    """Returns what has a gradient of 0, whatever dy is: all of a wholly masked row, which is nan, or elements of weight 0."""
    scores = spec.problem.scores
    some = scores.mask is not None or scores.sink or scores.zero_rows  # so that a score may be -inf where x is not
    return {"MASKED_GRADIENT": "rows" if scores.mask == "bool" or scores.causal else "elements" if some else ""}


def _of_samples(problem: Problem, device: Device) -> dict[str, Any]:
    """Returns the fields for what tokens are drawn by."""
    picks = problem.log_probs
    if picks is None or not picks.sample:
        return {}
    kinds = {"SEED": picks.seed, "POSITION": picks.position, "MIN_P": picks.min_p}
    return {"SAMPLE": True, "LOG2": device.vendor.log2} | {name: KINDS[kind] for name, kind in kinds.items()}


def _of_mask(spec: KernelSpec, threads: int) -> dict[str, Any]:
    """Returns the fields for what hides scores."""
    scores, tiling = spec.problem.scores, spec.tiling
    per_thread = 1 if tiling.num_warps is None else tiling.tile_rows * tiling.width // threads
    at_once = 1 if spec.problem.across or spec.mask_col == 0 else min(spec.problem.vector, tiling.width, per_thread)
    return {
        "MASK": scores.mask if scores.mask in ("bool", "bits") else "added" if scores.mask else "",
        "MASK_COL": spec.mask_col,
        "MASK_UNIT": spec.problem.mask_vector,
        "MASK_SHARED": spec.mask_shared,
        "ACCESS": max(1, at_once),
        "CAUSAL": scores.causal or "",
        "SINK": scores.sink,
        "MASKED_ROWS_ZERO": scores.zero_rows,
    }
