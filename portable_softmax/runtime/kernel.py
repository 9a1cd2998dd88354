"""What is compiled for a launch: a kernel of this package, its config, and the types of its parameters."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from portable_softmax.devices.backends.base import DTYPE_BYTES
from portable_softmax.devices.device import Device
from portable_softmax.planning.candidates import holds_as_loaded
from portable_softmax.planning.cost import limits_of
from portable_softmax.planning.problem import LogProbs, Problem, next_power_of_2
from portable_softmax.planning.tiling import Tiling

if TYPE_CHECKING:
    from portable_softmax.kernels.config import KernelConfig

POINTERS = {"float16": "*fp16", "bfloat16": "*bf16", "float32": "*fp32", "bool": "*i8", "bits": "*i32"}
MASKS = {"bool": "bool", "bits": "bits"}  # others are added
ALIGNED = {True: ":16", False: ""}
STEPS = {True: ("reduce", "map"), False: ("",)}  # of two launches, or one
COUNTS = "n_rows", "n_cols", "n_heads", "n_queries", "n_ids"  # of 32 bits
OTHERS = {True: "*fp32", False: "i64"}  # pointers, and numbers
FACTORS = {"": None, "number": "fp32", "rows": "*fp32"}  # by kind
INTEGERS = {"": None, "integer": "i64", "rows": "*i64"}
MASK_STRIDES = "m_col", "m_query", "m_head", "m_batch"
GROUP = 8  # columns that share a random number, of every type: what a token depends on, so no other number is compatible
MANY_BLOCKS = 16  # of a row: from here on LLVM keeps the places of their loads for their stores


@dataclass(frozen=True)
class Kernel:
    """Everything that a kernel is compiled for, except the device; the key of compiled kernels.

    Sizes and strides are arguments of fixed integer types, and never specialized on: C has what divides them, and where rows
    end in blocks. So a kernel is right for every problem with the same key.
    """

    function: Any  # of @triton.jit
    parameters: tuple[tuple[str, Any], ...]  # Triton's type, which is text, or a constexpr's value, None if absent; C is last
    options: tuple[int | None, int | None]  # num_warps, max_registers

    @cached_property
    def types(self) -> dict[str, str]:
        """Returns the types of run-time parameters: `*fp32:16` is a pointer to fp32 that starts on a multiple of 16 bytes."""
        return {name: kind for name, kind in self.parameters if isinstance(kind, str)}

    @cached_property
    def operands(self) -> tuple[str, ...]:
        """Returns the names of tensors and factors, in the order in which a launch is called with them."""
        names = [name for name, _ in self.parameters]
        return tuple(name for name in names[: names.index("n_rows")] if name != "words_ptr")

    @property
    def config(self) -> "KernelConfig":
        """Returns the value of C."""
        config: KernelConfig = self.parameters[-1][1].config
        return config

    def at_run_time(self, arguments: Sequence[Any]) -> list[Any]:
        """Returns those of a kernel's arguments, all in its order, that are no constexprs."""
        return [value for (name, _), value in zip(self.parameters, arguments, strict=False) if name in self.types]


def kernels_of(problem: Problem, tiling: Tiling, device: Device) -> list[Kernel]:
    """Returns the kernel of any problem with the same types, alignment, form and tiling; two for a tiling of two launches."""
    from portable_softmax.kernels import log_probs, softmax  # slow to import

    assert not problem.whole_vectors or min(problem.n_cols, tiling.width) >= problem.vector, "a row may lie inside of a vector"
    is_covered = tiling.strategy == "two-pass" or tiling.splits * tiling.split_cols >= problem.width
    assert is_covered, f"{tiling} does not cover {problem.width} columns"
    function, options = softmax.softmax_kernel, (tiling.num_warps, tiling.max_registers)
    if problem.log_probs:
        function = log_probs.token_log_probs_kernel
        if problem.log_probs.gradient:
            function = log_probs.token_log_probs_backward_kernel
    configs = [_config_of(problem, tiling, device, step) for step in STEPS[tiling.two_launches]]
    return [Kernel(function, _parameters_of(function, problem, config), options) for config in configs]


def _parameters_of(function: Any, problem: Problem, config: "KernelConfig") -> tuple[tuple[str, Any], ...]:
    """Returns the parameters of a kernel with their types or, of constexprs, values."""
    from portable_softmax.kernels.config import InKernel

    picks = problem.log_probs or LogProbs()
    x, y = (POINTERS[dtype] + ALIGNED[problem.starts_aligned] for dtype in (problem.x_dtype, problem.y_dtype))
    types: dict[str, Any] = dict.fromkeys(COUNTS, "i32") | {"ids_ptr": "*i64", "words_ptr": "*i64:16", "C": InKernel(config)}
    types |= {"x_ptr": x, "dx_ptr": x, "y_ptr": y, "dy_ptr": y, "result_ptr": y}
    if problem.backward:
        types["result_ptr"] = x
    types |= {"scale": FACTORS[config.SCALE], "temperature": FACTORS[config.TEMPERATURE], "min_p": FACTORS[config.MIN_P]}
    types |= {"seed": INTEGERS[config.SEED], "position": INTEGERS[config.POSITION]}
    if picks.sample:
        types["out_ptr"] = "*i64"
    if config.MASK:
        types["mask_ptr"] = POINTERS[problem.scores.mask or ""] + ALIGNED[config.MASK_UNIT > 1]
        if problem.mask.step > 0 or (problem.mask.step == 0 and config.MASK != "bits"):  # not all compile words of stride 0
            types["m_query" if problem.across else "m_col"] = problem.mask.step
    optional = {
        ("sink_ptr",): config.SINK,
        ("d_lse_ptr",): picks.lse,
        ("d_entropy_ptr",): picks.entropy,
        ("ids_ptr", "n_ids", "ignored"): not picks.sample,
        ("x_ptr",): not problem.backward or config.CAP,
        ("dy_ptr", "y_ptr"): problem.backward,
        ("mask_ptr", *MASK_STRIDES): config.MASK,
        ("words_ptr", "tag"): config.STEP or config.SPLITS > 1,
    }
    types |= {name: None for names, is_present in optional.items() if not is_present for name in names}
    return tuple((name, types.get(name, OTHERS[name.endswith("_ptr")])) for name in function.arg_names)


def _config_of(problem: Problem, tiling: Tiling, device: Device, step: str) -> "KernelConfig":
    """Returns everything that a kernel is compiled for, except the types of its operands."""
    from portable_softmax.kernels.config import KernelConfig

    scores, picks, mask, vendor = problem.scores, problem.log_probs or LogProbs(), problem.mask, device.vendor
    threads, polls = tiling.warps * limits_of(device).warp, device.profile.launch.polls
    unit = 1 if problem.whole_vectors else problem.vector  # of lengths and strides
    read = max(threads // tiling.tile_rows, next_power_of_2(tiling.splits))
    fields: dict[str, Any] = {"LOG": problem.form == "log_softmax", "GRADIENT": problem.backward, "FUSED": vendor.fuses}
    fields |= {"EXACT": DTYPE_BYTES[problem.y_dtype] > 2 and vendor.fuses, "SKIP_IGNORED": problem.skips}
    fields |= {"SAMPLE": picks.sample, "ENTROPY": picks.entropy, "MULTIPLE_IDS": picks.many, "LOG2": vendor.log2}
    fields |= {"SEED": picks.seed, "POSITION": picks.position, "MIN_P": picks.min_p or ""}
    fields |= {"SCALE": scores.scale or "", "TEMPERATURE": scores.temperature or "", "CAP": scores.cap or 0.0}
    fields |= {"CAUSAL": scores.causal or "", "SINK": scores.sink, "MASKED_ROWS_ZERO": scores.zero_rows}
    fields |= {"LEVELS": problem.depth, "VECTOR": problem.vector, "WHOLE_VECTORS": problem.whole_vectors, "UNIT": unit}
    fields |= {"OUT_LIKE_X": problem.stores and problem.out_like_x, "WALK": tiling.walk, "STEP": step}
    fields |= {"ROWS": tiling.tile_rows, "BLOCK": tiling.width, "SPLITS": tiling.splits}
    fields |= {"SPLITS_READ": read, "ATOMIC_POLL": vendor.poll == "atomic", "POLLS": getattr(polls, "value", 1)}
    fields |= {"IN_REGISTERS": tiling.in_registers and not picks.gradient, **_parts_of(problem, tiling, device)}
    if fields["IN_REGISTERS"]:
        fields |= {"BLOCKS": tiling.blocks, "UNMASKED_BLOCKS": _whole_blocks(problem, tiling)}
    if problem.across:
        fields |= {"AXIS": 0, "COL_UNIT": unit, "HEAD_TILES": not problem.scattered}
    else:
        fields |= {"ROW_UNIT": unit, "HEAD_TILES": problem.numbered and problem.depth > 1}
    if problem.across or problem.whole_vectors or tiling.is_split or tiling.blocks > MANY_BLOCKS:
        fields |= {"OPAQUE": vendor.register}
    if problem.log_probs is None and holds_as_loaded(problem, tiling, device):
        fields |= {"AS_LOADED": vendor.vector_register}
    if problem.backward:  # y, and no mask, is read
        fields |= {"MASKED_GRADIENT": scores.mask is not None}
    elif scores.mask:
        fields |= {"MASK": MASKS.get(scores.mask, "added"), "MASK_UNIT": mask.vector, "MASK_SHARED": mask.per_batch}
        fields |= {"MASK_COL": mask.col}
        if tiling.num_warps and mask.col and not problem.across:
            fields |= {"ACCESS": max(1, min(problem.vector, tiling.width, tiling.tile_rows * tiling.width // threads))}
    return KernelConfig(**fields)


def _whole_blocks(problem: Problem, tiling: Tiling) -> int:
    """Returns how many blocks at the start of all splits are within rows, of which the last may have one more."""
    if problem.scores.causal:
        return 0
    blocks, within = -(-problem.width // tiling.width), problem.n_cols // tiling.width
    fewest, in_last = blocks // tiling.splits, -(-blocks // tiling.splits)
    return max(0, min(fewest, in_last - (blocks - within)))


def _parts_of(problem: Problem, tiling: Tiling, device: Device) -> dict[str, int]:
    """Returns the columns with statistics of their own: groups of adjacent ones, or the columns of a thread.

    Threads are spread over adjacent elements first. Without threads, a gradient adds up whole blocks, a softmax every block.
    """
    picks, threads = problem.log_probs, tiling.warps * limits_of(device).warp
    if picks and not picks.gradient and (device.vendor.fuses or picks.sample):
        group = min(GROUP, tiling.width)
        return {"GROUP": group, "PARTS": tiling.width // group}
    if tiling.num_warps is None:
        return {"PARTS": tiling.width if problem.backward else 1}
    lines = tiling.tile_rows if problem.across else 1
    return {"PARTS": max(1, min(tiling.width, threads * problem.vector // lines))}  # elements that are read at once
