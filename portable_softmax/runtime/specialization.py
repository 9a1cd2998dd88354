"""Specialisations of the package's kernels.

Everything that a kernel is specialised on stands in its KernelSpec: sizes and strides have fixed integer types and are
never specialised on their values, so a kernel is right for every problem of the same spec.
"""

from dataclasses import dataclass, replace

from portable_softmax.planning.plan import Tiling
from portable_softmax.planning.problem import Problem

TRITON_NAMES = {"float16": "fp16", "bfloat16": "bf16", "float32": "fp32"}

SIZES = {"n_lines": "i64", "length": "i32"} | dict.fromkeys(
    ("out_line", "a_line", "n_matrices", "out_matrix", "a_matrix", "n_batches", "out_batch", "a_batch"), "i64"
)
MASK_STRIDES = "mask_col", "mask_row", "mask_matrix", "mask_batch"


@dataclass(frozen=True, kw_only=True)
class KernelSpec:
    """Everything that a kernel is compiled for, beside the device.

    Args:
        problem: with a size of 1 in place of each that no kernel depends on, and without its lines.
        tiling: the cut of rows into tiles.
        many: rows may be 2**31 or more.
        padded: tiles end elsewhere than rows do.
        mask_shared: all matrices of a batch have the same mask.
    """

    problem: Problem
    tiling: Tiling
    many: bool = True
    padded: bool = True
    mask_shared: bool = False

    @classmethod
    def of(cls, problem: Problem, tiling: Tiling) -> "KernelSpec":
        """Returns the kernel for any problem of the same types, alignment, form and tiling.

        Raises:
            ValueError: the tiling's programs together hold less than a row, or a block of a row lies past its end; or an
                unaligned row may lie inside one vector.
        """
        if problem.unaligned and problem.n_cols < problem.vector:
            raise ValueError(
                f"rows of {problem.n_cols} columns may lie inside a vector of {problem.vector}: they cannot be unaligned"
            )
        covered = tiling.covers(problem.n_cols)
        if covered < problem.n_cols:
            raise ValueError(f"{tiling} covers {covered} columns of {problem.n_cols}; give it more splits or columns")
        unmasked = tiling.tile_cols - tiling.width if tiling.splits == 1 else 0  # all blocks but the last
        if unmasked > problem.n_cols:
            raise ValueError(f"{tiling} has whole blocks past the {problem.n_cols} columns; give it fewer blocks")
        inner = 2 if problem.across else 1
        return cls(
            problem=replace(problem, n_rows=1, n_cols=1, inner=inner, lines=None, batch_invariant=False, in_place=False),
            tiling=tiling,
            many=not problem.numbered or problem.n_rows >= 2**31,
            padded=problem.unaligned or covered != problem.n_cols,
            mask_shared=problem.mask_shared,
        )

    def signature(self) -> dict[str, str]:
        """Returns Triton's types of the run-time parameters that there are, by name and in the kernel's order."""
        problem, scores = self.problem, self.problem.scores
        result, given = (problem.x_dtype, problem.y_dtype) if problem.backward else (problem.y_dtype, problem.x_dtype)
        operands = {"out": result, "a": given, "b": problem.y_dtype}
        if not problem.stores:
            del operands["out"]
        if not problem.backward:
            del operands["b"]
        own = not problem.backward  # scores' mask and sinks are those of the softmax alone
        by_row = scores.factor == "rows"
        there = {f"{name}_ptr": self._pointer(dtype) for name, dtype in operands.items()}
        there |= {"mask_ptr": self._mask()} if scores.mask and own else {}
        picks = problem.log_probs
        numbers = {"factors_ptr": by_row, "sinks_ptr": scores.sink and own, "statistics_ptr": picks}
        there |= {name: "*fp32" for name, present in numbers.items() if present}
        if picks:
            there |= {"ids_ptr": "*i64", "picked_ptr": "*fp32"}
            there |= {"entropies_ptr": "*fp32"} if picks.gradient and picks.entropy else {}
            there |= {"lses_ptr": "*fp32"} if picks.lse else {}
        there |= SIZES
        there |= dict.fromkeys(MASK_STRIDES if scores.mask and own else (), "i64")
        there |= {"n_ids": "i32", "ignored": "i64"} if picks else {}
        there |= {"factor": "i64"} if scores and not by_row else {}  # of each call, behind all sizes
        return there | ({"workspace_ptr": "*i64:16", "epoch": "i64"} if self.exchanges else {})

    @property
    def exchanges(self) -> bool:
        """Tells whether programs exchange numbers."""
        return self.tiling.is_shared and self.problem.pairs > 0

    def _pointer(self, dtype: str) -> str:
        return f"*{TRITON_NAMES[dtype]}{':16' if self.problem.aligned else ''}"

    def _mask(self) -> str:
        problem = self.problem
        kind = "*i8" if problem.scores.mask == "bool" else f"*{TRITON_NAMES[problem.scores.mask or problem.x_dtype]}"
        return f"{kind}:16" if problem.mask_vector > 1 else kind
