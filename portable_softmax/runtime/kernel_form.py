"""The kernel of a specialisation and its form: all that it is compiled for, beside the types of its operands."""

from typing import TYPE_CHECKING, Any

from portable_softmax.devices.backends.base import DTYPE_BYTES
from portable_softmax.devices.device import Device
from portable_softmax.planning.log_probs import LogProbs
from portable_softmax.planning.problem import next_power_of_2
from portable_softmax.runtime.specialization import KernelSpec

if TYPE_CHECKING:
    from portable_softmax.kernels.form import Form


def kernel_of(spec: KernelSpec) -> Any:
    """Returns the @triton.jit function. The first one takes a while to be read, so it is asked for when it is compiled."""
    from portable_softmax.kernels.softmax import softmax_kernel

    return softmax_kernel


def constexprs_of(spec: KernelSpec, device: Device, in_float32: bool = False) -> dict[str, Any]:
    """Returns the values of the kernel's constexprs, by name; `in_float32`: for bfloat16 that was copied to float32.

    A parameter that a launch does not have is the constexpr None.
    """
    from portable_softmax.kernels.form import constexpr_of

    form = form_of(spec, device)
    absent = dict.fromkeys({*kernel_of(spec).arg_names} - spec.signature().keys())
    return {**absent, "FORM": constexpr_of(form.in_float32() if in_float32 else form)}


def form_of(spec: KernelSpec, device: Device) -> "Form":
    """Returns everything that the kernel is compiled for, beside the types of its operands."""
    from portable_softmax.kernels.form import Form

    tiling, scores, polls = spec.tiling, spec.problem.scores, device.profile.launch.polls
    threads = _most_threads(spec, device)
    numbers = tiling.tile_rows * next_power_of_2(tiling.splits)
    axis = 0 if spec.problem.across else 1
    return Form(
        backward=spec.problem.backward,
        log=spec.problem.form == "log_softmax",
        exact=DTYPE_BYTES[spec.problem.y_dtype] > 2,
        rounded_to=spec.problem.y_dtype,
        axis=axis,
        depth=spec.problem.depth,
        flat=spec.problem.scattered or (not spec.problem.across and (not spec.problem.numbered or spec.problem.depth == 1)),
        vector=spec.problem.vector,
        unaligned=spec.problem.unaligned,
        padded=spec.padded,
        tile_rows=tiling.tile_rows,
        width=tiling.width,
        blocks=tiling.blocks,
        held=tiling.held,
        accumulators=_accumulators(spec, threads),
        walks=tiling.walk,
        counted_in="int64" if spec.many else "uint32",
        stages=tiling.num_stages or 1,
        scored=bool(scores),
        divides=scores.divides and scores.factor == "rows",
        by_row=scores.factor == "rows",
        **({"hides": scores.hides, "voids": scores.voids} if spec.problem.backward else _masks(spec, threads)),
        splits=tiling.splits,
        slots=tiling.slots_per_tile * spec.problem.pairs,
        lanes=max(threads, numbers) if tiling.is_shared else 1,
        poll=device.vendor.poll,
        polls=polls.value if polls else 1,
        **(_log_probs(spec.problem.log_probs) if spec.problem.log_probs else {}),
    )


def _most_threads(spec: KernelSpec, device: Device) -> int:
    """Returns the threads of a program, or the most that it may have if the vendor's compiler chooses its warps."""
    if spec.tiling.num_warps is None:
        return device.hardware.max_threads_per_program or 1
    return spec.tiling.num_warps * (device.hardware.warp_size or 1)


def _accumulators(spec: KernelSpec, threads: int) -> int:
    """Returns how many columns of a block lie in different threads: a thread has one number for all of its columns.

    Threads are spread over what is next to each other first. Without threads a gradient adds up whole blocks, and a softmax
    reduces each.
    """
    tiling, width = spec.tiling, spec.tiling.width
    if tiling.num_warps is None:
        return width if spec.problem.backward else 1
    read = threads * spec.problem.vector  # elements at once
    return min(width, max(1, read // tiling.tile_rows if spec.problem.across else read))


def _masks(spec: KernelSpec, threads: int) -> dict[str, Any]:
    """Returns the fields of a form for what is done to scores behind the factor."""
    scores = spec.problem.scores
    return {
        "cap": scores.cap or 0.0,
        "cap_scale": scores.cap_scale,
        "mask": "added" if scores.mask not in (None, "bool") else scores.mask or "",
        "mask_step": -1 if spec.problem.mask_step is None else spec.problem.mask_step,
        "mask_unit": spec.problem.mask_vector,
        "access": _access(spec, threads),
        "mask_shared": spec.mask_shared,
        "causal": scores.causal or "",
        "sink": scores.sink,
        "zero_rows": scores.zero_rows,
    }


def _log_probs(wanted: LogProbs) -> dict[str, Any]:
    """Returns the fields of a form for what is wanted in place of a softmax."""
    picks = "gradient" if wanted.gradient else "forward"
    return {"picks": picks, "entropy": wanted.entropy, "lse": wanted.lse, "many": wanted.many}


def _access(spec: KernelSpec, threads: int) -> int:
    """Returns how many neighbours a thread reads at once; 1 where there are no threads, and whole tiles are moved."""
    tiling = spec.tiling
    if tiling.num_warps is None:
        return 1
    return max(1, min(spec.problem.vector, tiling.tile_rows * tiling.width // threads))
