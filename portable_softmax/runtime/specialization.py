"""Specialisations of the package's kernels.

Everything that a kernel is specialised on stands in its KernelSpec: sizes and strides have fixed integer types and are
never specialised on their values, so a kernel is right for every problem of the same spec.
"""

from dataclasses import dataclass, fields
from typing import Any

from portable_softmax.devices.backends.base import DTYPE_BYTES
from portable_softmax.devices.policy import Step
from portable_softmax.planning.plan import Tiling
from portable_softmax.planning.problem import Form, Problem
from portable_softmax.planning.scores import NONE, Scores

TRITON_NAMES = {"float16": "fp16", "bfloat16": "bf16", "float32": "fp32", "float64": "fp64"}

SIZES = {"n_lines": "i64", "length": "i32"} | dict.fromkeys(
    ("out_line", "a_line", "n_matrices", "out_matrix", "a_matrix", "n_batches", "out_batch", "a_batch"), "i64"
)
MASK_STRIDES = "mask_col", "mask_row", "mask_matrix", "mask_batch"
OPERANDS = "out_ptr", "a_ptr", "b_ptr", "mask_ptr", "factors_ptr", "sinks_ptr", "statistics_ptr"
PARAMETERS = {*OPERANDS, *SIZES, *MASK_STRIDES, "factor", "n_groups", "workspace_ptr", "epoch"}  # of the kernel, without FORM


@dataclass(frozen=True, kw_only=True)
class KernelSpec:
    """Everything that a kernel is compiled for, beside the device: the tiling, and what Problem says of each field."""

    tiling: Tiling
    x_dtype: str
    y_dtype: str
    vector: int
    aligned: bool
    form: Form = "softmax"
    backward: bool = False
    across: bool = False
    unaligned: bool = False
    paired: bool = False
    last_alone: bool = False
    depth: int = 1
    transposed: bool = False
    scattered: bool = False
    step: Step | None = None
    scores: Scores = NONE
    mask_step: int | None = 1
    mask_vector: int = 1
    mask_shared: bool = False
    many: bool = True  # rows may be 2**31 or more
    padded: bool = True  # tiles end elsewhere than rows do
    in_place: bool = False  # programs that share rows overwrite them

    @classmethod
    def of(cls, problem: Problem, tiling: Tiling) -> "KernelSpec":
        """Returns the kernel for any problem of the same types, alignment, form and tiling.

        Raises:
            ValueError: the tiling's programs together hold less than a row, or a block of a row lies past its end; or it is
                for other folded lines; or an unaligned row may lie inside one vector.
        """
        if problem.unaligned and problem.n_cols < problem.vector:
            raise ValueError(
                f"rows of {problem.n_cols} columns may lie inside a vector of {problem.vector}: they cannot be unaligned"
            )
        if tiling.folded != problem.folded:
            raise ValueError(
                f"{problem.folded} lines are read as one, and a tiling is for {tiling.folded}; see Tiling.of_folded"
            )
        covered = tiling.covers(problem.n_cols)
        if covered < problem.n_cols:
            raise ValueError(f"{tiling} covers {covered} columns of {problem.n_cols}; give it more splits or columns")
        unmasked = tiling.tile_cols - tiling.width if tiling.splits == 1 else 0  # all blocks but the last
        if unmasked > problem.n_cols:
            raise ValueError(f"{tiling} has whole blocks past the {problem.n_cols} columns; give it fewer blocks")
        own: dict[str, Any] = {
            "tiling": tiling,
            "many": not problem.scores or problem.n_rows >= 2**31,
            "padded": problem.unaligned or covered != problem.n_cols,
            "in_place": problem.in_place and tiling.is_shared,
        }
        return cls(**own, **{each.name: getattr(problem, each.name) for each in fields(cls) if each.name not in own})

    @property
    def narrows(self) -> bool:
        """Tells whether a float64 is rounded to 16 bits."""
        given, result = (self.y_dtype, self.x_dtype) if self.backward else (self.x_dtype, self.y_dtype)
        return given == "float64" and DTYPE_BYTES[result] == 2

    def signature(self) -> dict[str, str]:
        """Returns Triton's types of the run-time parameters that there are, by name and in the kernel's order."""
        result, given = (self.x_dtype, self.y_dtype) if self.backward else (self.y_dtype, self.x_dtype)
        operands = {"out": result, "a": given, "b": self.y_dtype}
        if self.paired:
            names = ("dx_ptr", "dy_ptr", "y_ptr")
            return {
                **dict(zip(names, map(self._pointer, operands.values()), strict=True)),
                "n_rows": "i64",
                "row_length": "i32",
            }
        if self.step == "reduce":
            del operands["out"]
        if not self.backward:
            del operands["b"]
        scores, own = self.scores, not self.backward  # scores' mask and sinks are those of the softmax alone
        by_row = scores.factor == "rows"
        there = {f"{name}_ptr": self._pointer(dtype) for name, dtype in operands.items()}
        there |= {"mask_ptr": self._mask()} if scores.mask and own else {}
        numbers = {"factors_ptr": by_row, "sinks_ptr": scores.sink and own, "statistics_ptr": self.step}
        there |= {name: "*fp64" if self.y_dtype == "float64" else "*fp32" for name, present in numbers.items() if present}
        there |= SIZES
        there |= dict.fromkeys(MASK_STRIDES if scores.mask and own else (), "i64")
        there |= {"factor": "i64"} if scores and not by_row else {}
        there |= {"n_groups": "i64"} if self.step == "map" else {}
        return there | ({"workspace_ptr": "*i64:16", "epoch": "i64"} if self.tiling.is_shared else {})

    def _pointer(self, dtype: str) -> str:
        return f"*{TRITON_NAMES[dtype]}{':16' if self.aligned else ''}"

    def _mask(self) -> str:
        kind = "*i8" if self.scores.mask == "bool" else f"*{TRITON_NAMES[self.scores.mask or self.x_dtype]}"
        return f"{kind}:16" if self.mask_vector > 1 else kind
