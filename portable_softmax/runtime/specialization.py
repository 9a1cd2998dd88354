"""Specializations of the package's kernels.

A KernelSpec holds everything that a kernel is specialised on: sizes and strides have fixed integer types and are
never specialised on their values, so a kernel is right for every problem of the same spec.
"""

from dataclasses import dataclass, replace

from portable_softmax.planning.plan import Tiling
from portable_softmax.planning.problem import Problem

TRITON_NAMES = {"float16": "fp16", "bfloat16": "bf16", "float32": "fp32"}
WIDE_ROWS = 2**31 - 2**20  # rows from here on are numbered in 64 bits: a tile reaches past the last one

INT64 = frozenset(f"{tensor}_{level}" for tensor in ("x", "dy", "m") for level in ("batch", "head", "query", "col"))


@dataclass(frozen=True, kw_only=True)
class KernelSpec:
    """Everything that a kernel is compiled for, except the device.

    Args:
        problem: with a size of 1 in place of each that no kernel depends on, and without its lines.
        tiling: the cut of rows into tiles.
        wide: rows may be 2**31 or more.
        whole: the first so many blocks of all splits that are within rows, whatever vector these begin in; 0 without a tile.
        mask_shared: all matrices of a batch, such as heads, share a mask, in which rows differ.
        mask_col: the mask's stride between columns if 0 or 1, else -1.
        out_like_x: the result has the strides of x, and is not contiguous.
        skip: rows without a token are not read.
        step: "reduce" or "map" for one of two launches.
    """

    problem: Problem
    tiling: Tiling
    wide: bool = False
    whole: int = 0
    mask_shared: bool = False
    mask_col: int = 1
    out_like_x: bool = False
    skip: bool = False
    step: str = ""

    @classmethod
    def of(cls, problem: Problem, tiling: Tiling) -> "KernelSpec":
        """Returns the kernel for any problem of the same types, alignment, form and tiling; the first of two launches.

        Raises:
            ValueError: the tiling's programs together hold less than a row; or an unaligned row may be inside one vector.
        """
        if problem.unaligned and min(problem.n_cols, tiling.width) < problem.vector:
            raise ValueError(
                f"rows of {problem.n_cols} columns, or blocks of {tiling.width}, may lie inside a vector of {problem.vector}: "
                "they cannot be unaligned"
            )
        covered = tiling.covers(problem.width)
        if covered < problem.width:
            raise ValueError(f"{tiling} covers {covered} columns of {problem.width}; use more splits or columns")
        return cls(
            problem=replace(
                problem,
                n_rows=1,
                n_cols=1,
                inner=2 if problem.across else 1,
                batch_invariant=False,
                in_place=False,
                rows_per_matrix=None,
                alike=False,
                out_like_x=False,
                mask_col=1,
                mask_per_batch=False,
                mask_copies=None,
            ),
            tiling=tiling,
            wide=problem.n_rows >= WIDE_ROWS,
            whole=_whole_blocks(problem, tiling) if tiling.held and not problem.scores.causal else 0,
            mask_shared=problem.mask_per_batch,
            mask_col=problem.mask_col,
            out_like_x=problem.stores and problem.out_like_x,
            skip=problem.skips and not problem.is_sample,
            step="reduce" if tiling.two_launches else "",
        )

    @property
    def exchanges(self) -> bool:
        """True if programs exchange row statistics."""
        return self.tiling.is_shared and self.problem.pairs > 0 and not self.tiling.two_launches

    @property
    def kernel_name(self) -> str:
        """Returns the name of the kernel, which profilers see."""
        if self.problem.is_sample:
            return "sample_token_kernel"
        name = "token_log_probs" if self.problem.log_probs else "softmax"
        gradient = self.problem.log_probs.gradient if self.problem.log_probs else self.problem.backward
        return f"{name}_backward_kernel" if gradient else f"{name}_kernel"

    def tensors(self) -> dict[str, str]:
        """Returns Triton's types of the tensors that a launch is called with, by parameter and in the order of operands."""
        problem, scores, picks = self.problem, self.problem.scores, self.problem.log_probs
        x, y = self._pointer(problem.x_dtype), self._pointer(problem.y_dtype)
        by_row = {"scale": scores.scale == "rows", "temperature": scores.temperature == "rows"}
        of_rows = {name: "*fp32" for name, present in by_row.items() if present}
        mask = {"mask_ptr": self._mask()} if scores.mask and not problem.backward else {}
        if picks and picks.sample:
            kinds = {"min_p": (picks.min_p, "*fp32"), "seed": (picks.seed, "*i64"), "position": (picks.position, "*i64")}
            of_rows |= {name: pointer for name, (kind, pointer) in kinds.items() if kind == "rows"}
            return {"x_ptr": x, **mask, **of_rows, "ids_ptr": "*i64", "out_ptr": "*fp32"}
        if picks and picks.gradient:
            more = {"d_entropy_ptr": "*fp32"} if picks.entropy else {}
            more |= {"d_lse_ptr": "*fp32"} if picks.lse else {}
            own = {"dx_ptr": x, "x_ptr": x, **mask, **of_rows, "statistics_ptr": "*fp32"}
            return own | {"ids_ptr": "*i64", "d_out_ptr": "*fp32", **more}
        if picks:
            return {"x_ptr": x, **mask, **of_rows, "statistics_ptr": "*fp32", "ids_ptr": "*i64", "out_ptr": "*fp32"}
        if problem.backward:
            capped = {"x_ptr": x} if scores.cap else {}
            return {"dx_ptr": x, "dy_ptr": y, "y_ptr": y, **capped, **of_rows}
        return {"y_ptr": y, "x_ptr": x, **mask, **of_rows, **({"sink_ptr": "*fp32"} if scores.sink else {})}

    def numbers(self) -> tuple[str, ...]:
        """Returns the parameters that are numbers of each launch, in the order of operands, behind the tensors."""
        scores = self.problem.scores
        kinds = {"scale": scores.scale, "temperature": scores.temperature}
        if (picks := self.problem.log_probs) and picks.sample:
            kinds |= {"min_p": picks.min_p, "seed": picks.seed, "position": picks.position}
        return tuple(name for name, kind in kinds.items() if kind == "number")

    def words(self) -> dict[str, str]:
        """Returns the types of the workspace of a launch: words to exchange, or for a second launch."""
        words = {"words_ptr": "*fp32:16" if self.step else "*i64:16", "epoch": "i64"}
        return words if self.exchanges or self.step else {}

    def constants(self, names: tuple[str, ...]) -> dict[str, int | None]:
        """Returns the values of a kernel's parameters that are known or absent, but for its config, by name."""
        known: dict[str, int | None] = {}
        if self.problem.scores.mask and not self.problem.backward:
            if self.problem.across and self.problem.mask_step is not None:
                known["m_query"] = self.problem.mask_step
            elif not self.problem.across and self.mask_col >= 0:
                known["m_col"] = self.mask_col
        else:
            known |= dict.fromkeys(name for name in names if name.startswith("m_"))
        passed = self.tensors().keys() | self.words().keys() | {*self.numbers()}
        optional = {"scale", "temperature", "min_p", "epoch", *(name for name in names if name.endswith("_ptr"))}
        return known | dict.fromkeys(name for name in names if name in optional - passed)

    def signature(self, names: tuple[str, ...]) -> dict[str, str]:
        """Returns Triton's types of the run-time parameters that there are, by name and in the kernel's order.

        Args:
            names: of all parameters of the kernel.
        """
        constants, size = self.constants(names), "i64" if self.wide else "i32"
        types = {**self.tensors(), **dict.fromkeys(self.numbers(), "fp32"), **self.words(), "ignored": "i64"}
        types |= dict.fromkeys(("n_cols", "n_ids"), "i32") | dict.fromkeys(INT64, "i64")
        types |= {name: "i64" for name in ("seed", "position") if name in self.numbers()}
        return {name: types.get(name, size) for name in names if name != "C" and name not in constants}

    def _pointer(self, dtype: str) -> str:
        return f"*{TRITON_NAMES[dtype]}{':16' if self.problem.aligned else ''}"

    def _mask(self) -> str:
        problem = self.problem
        kind = {"bool": "*i8", "bits": "*i32"}.get(problem.scores.mask or "") or f"*{TRITON_NAMES[problem.scores.mask or '']}"
        return f"{kind}:16" if problem.mask_vector > 1 else kind


def _whole_blocks(problem: Problem, tiling: Tiling) -> int:
    """Returns how many blocks at the start of each split are within rows; the last splits may have one more than the first."""
    blocks, within = -(-problem.width // tiling.width), problem.n_cols // tiling.width
    fewest, in_last = blocks // tiling.splits, -(-blocks // tiling.splits)
    return max(0, min(fewest, in_last - (blocks - within)))
