"""Specialisations of the package's kernels.

Everything that a kernel is specialised on stands in its KernelSpec: sizes and strides have fixed integer types and are
never specialised on their values, so a kernel is right for every problem of the same spec.
"""

from dataclasses import dataclass

from portable_softmax.devices.backends.base import DTYPE_BYTES
from portable_softmax.devices.policy import Step
from portable_softmax.planning.plan import Tiling
from portable_softmax.planning.problem import Form, Problem
from portable_softmax.planning.scores import NONE, Scores

TRITON_NAMES = {"float16": "fp16", "bfloat16": "bf16", "float32": "fp32", "float64": "fp64"}

OF_THE_PROBLEM = (
    *("x_dtype", "y_dtype", "vector", "aligned", "form", "backward"),
    *("across", "ragged", "paired", "last_alone", "depth", "turned", "scattered", "folded", "step", "scores"),
    *("mask_step", "mask_vector", "mask_shared"),
)


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
    ragged: bool = False
    paired: bool = False
    last_alone: bool = False
    depth: int = 1
    turned: bool = False
    scattered: bool = False
    folded: int = 1
    step: Step | None = None
    scores: Scores = NONE
    mask_step: int | None = 1
    mask_vector: int = 1
    mask_shared: bool = False
    many: bool = True  # rows may be 2**31 or more
    padded: bool = True  # tiles end elsewhere than rows do

    @classmethod
    def of(cls, problem: Problem, tiling: Tiling) -> "KernelSpec":
        """Returns the kernel for any problem of the same types, alignment, form and tiling.

        Raises:
            ValueError: the tiling's programs together hold less than a row, or a piece of a row lies past its end; or a ragged
                row may lie inside one vector.
        """
        if problem.ragged and problem.n_cols < problem.vector:
            raise ValueError(
                f"rows of {problem.n_cols} columns may lie inside a vector of {problem.vector}: they cannot be ragged"
            )
        covered = tiling.parts * tiling.tile_cols
        if tiling.strategy != "online" and covered < problem.n_cols:
            raise ValueError(f"{tiling} covers {covered} columns of {problem.n_cols}; give it more parts or columns")
        unmasked = tiling.tile_cols - tiling.tile_cols // tiling.pieces if tiling.parts == 1 else 0  # all pieces but the last
        if unmasked > problem.n_cols:
            raise ValueError(f"{tiling} has whole pieces past the {problem.n_cols} columns; give it fewer pieces")
        ends_with_rows = problem.n_cols % tiling.tile_cols == 0 if tiling.strategy == "online" else covered == problem.n_cols
        shared = {field: getattr(problem, field) for field in OF_THE_PROBLEM}
        many = not problem.scores or problem.n_rows >= 2**31
        return cls(tiling=tiling, padded=problem.ragged or not ends_with_rows, many=many, **shared)

    @property
    def name(self) -> str:
        """Returns the name of the @triton.jit function: of the softmax, its gradient, scores, pairs of rows, or a step."""
        if self.step:
            return f"{self.step}_kernel"
        if self.paired:
            return "pairs_backward_kernel"
        if self.scores:
            return "scored_backward_kernel" if self.backward else "scored_kernel"
        return "softmax_backward_kernel" if self.backward else "softmax_kernel"

    @property
    def narrows(self) -> bool:
        """Tells whether a float64 is rounded to 16 bits."""
        given, result = (self.y_dtype, self.x_dtype) if self.backward else (self.x_dtype, self.y_dtype)
        return given == "float64" and DTYPE_BYTES[result] == 2

    def signature(self) -> dict[str, str]:
        """Returns Triton's types of the run-time parameters, by name."""
        dtypes = {"y": self.y_dtype, "x": self.x_dtype}
        if self.backward:
            dtypes = {"dx": self.x_dtype, "dy": self.y_dtype, "y": self.y_dtype}
        numbers = {}
        if self.step:
            out, given = (self.x_dtype, self.y_dtype) if self.backward else (self.y_dtype, self.x_dtype)
            dtypes = {**({"out": out} if self.step == "map" else {}), "a": given, "b": given}
            numbers = {"numbers_ptr": "*fp64" if self.y_dtype == "float64" else "*fp32"}
        alignment = ":16" if self.aligned else ""
        pointers = {f"{name}_ptr": f"*{TRITON_NAMES[dtype]}{alignment}" for name, dtype in dtypes.items()}
        if self.paired:
            return {**pointers, "n_rows": "i64", "row_length": "i32"}
        of_scores = ["mask_col", "mask_row", "mask_matrix", "mask_block", "factor"]
        if self.scores:
            numbers = self._pointers_of_scores()
        strided = list(dtypes)[:2]  # the last of three operands lies as the result does
        return {
            **pointers,
            **numbers,
            "n_lines": "i64",
            "length": "i32",
            **{f"{name}_line": "i64" for name in strided},
            "n_matrices": "i64",
            **{f"{name}_matrix": "i64" for name in strided},
            "n_blocks": "i64",
            **{f"{name}_block": "i64" for name in strided},
            **({"n_groups": "i64"} if self.step == "map" else {}),
            **dict.fromkeys(of_scores[4 * self.backward :] if self.scores else [], "i64"),
            **({} if not self.tiling.is_shared else {"words_ptr": "*i64:16", "launch": "i64"}),
        }

    def _pointers_of_scores(self) -> dict[str, str]:
        """Returns the types of the operands that only scores have; where there is none, that of x, which stands in for it."""
        scores, given = self.scores, f"*{TRITON_NAMES[self.x_dtype if not self.backward else self.y_dtype]}"
        mask = {None: given, "bool": "*i8"}.get(scores.mask) or f"*{TRITON_NAMES[scores.mask or self.x_dtype]}"
        mask += ":16" if scores.mask and self.mask_vector > 1 else ""
        computed = "*fp64" if self.y_dtype == "float64" else "*fp32"
        factors = computed if scores.factor == "rows" else given
        if self.backward:
            return {"factors_ptr": factors}
        return {"mask_ptr": mask, "factors_ptr": factors, "sinks_ptr": computed if scores.sink else given}
