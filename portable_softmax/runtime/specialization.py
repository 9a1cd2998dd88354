"""Specialisations of the package's kernels, each compiled once.

Everything that a kernel is specialised on stands in its KernelSpec: sizes and strides have fixed integer types and are
never specialised on their values, so a kept kernel is right for every problem of the same spec.
"""

import functools
import threading
from dataclasses import dataclass
from typing import Any

from portable_softmax.devices.backends.base import DTYPE_BYTES, KernelResources
from portable_softmax.devices.device import Device
from portable_softmax.devices.policy import Step
from portable_softmax.errors import CompileError
from portable_softmax.planning.plan import Tiling
from portable_softmax.planning.problem import Form, Problem, next_power_of_2
from portable_softmax.runtime import compiler

TRITON_NAMES = {"float16": "fp16", "bfloat16": "bf16", "float32": "fp32", "float64": "fp64"}

_compiling = threading.Lock()
_compiled: dict[tuple[Any, ...], Any] = {}


OF_THE_PROBLEM = (
    *("x_dtype", "y_dtype", "vector", "aligned", "form", "backward"),
    *("across", "ragged", "paired", "last_alone", "depth", "turned", "scattered", "step"),
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
    step: Step | None = None
    padded: bool = True  # tiles end elsewhere than rows do

    @classmethod
    def of(cls, problem: Problem, tiling: Tiling) -> "KernelSpec":
        """Returns the kernel for any problem of the same types, alignment, form and tiling.

        Raises:
            ValueError: the tiling's programs together hold less than a row, or a piece of a row lies past its end.
        """
        covered = tiling.parts * tiling.tile_cols
        if tiling.strategy != "online" and covered < problem.n_cols:
            raise ValueError(f"{tiling} covers {covered} columns of {problem.n_cols}; give it more parts or columns")
        unmasked = tiling.tile_cols - tiling.tile_cols // tiling.pieces if tiling.parts == 1 else 0  # all pieces but the last
        if unmasked > problem.n_cols:
            raise ValueError(f"{tiling} has whole pieces past the {problem.n_cols} columns; give it fewer pieces")
        ends_with_rows = problem.n_cols % tiling.tile_cols == 0 if tiling.strategy == "online" else covered == problem.n_cols
        shared = {field: getattr(problem, field) for field in OF_THE_PROBLEM}
        return cls(tiling=tiling, padded=problem.ragged or not ends_with_rows, **shared)

    @property
    def kernel(self) -> Any:
        """The @triton.jit function: of the softmax, of its gradient, or of a step of either."""
        if self.step:
            from portable_softmax.kernels import sharded

            return sharded.reduce_kernel if self.step == "reduce" else sharded.map_kernel
        from portable_softmax.kernels import softmax

        return softmax.softmax_backward_kernel if self.backward else softmax.softmax_kernel

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
        return {
            **{f"{name}_ptr": f"*{TRITON_NAMES[dtype]}{alignment}" for name, dtype in dtypes.items()},
            **numbers,
            "n_lines": "i64",
            "n_line_vectors": "i32",
            **{f"{name}_line_vectors": "i64" for name in dtypes},
            "n_matrices": "i64",
            **{f"{name}_matrix_vectors": "i64" for name in dtypes},
            "n_blocks": "i64",
            **{f"{name}_block_vectors": "i64" for name in dtypes},
            **({"n_groups": "i64"} if self.step == "map" else {}),
            **({} if self.tiling.parts == 1 else {"words_ptr": "*i64:16", "launch": "i64"}),
        }

    def constexprs(self, device: Device) -> dict[str, Any]:
        """Returns the values of the kernel's constexprs, by name."""
        import triton.language as tl

        shared, polls = self.tiling.parts > 1, device.profile.launch.polls
        numbers = self.tiling.tile_rows * next_power_of_2(self.tiling.parts)
        values = {
            **({} if shared else {"words_ptr": None, "launch": None}),
            "VECTOR": self.vector,
            "RAGGED": self.ragged,
            "PAIRED": self.paired,
            "LAST_ALONE": self.last_alone,
            "PADDED": self.padded,
            "TILE_ROWS": self.tiling.tile_rows,
            "TILE_COLS": self.tiling.tile_cols,
            "PIECES": self.tiling.pieces,
            "ONE_TILE": self.tiling.strategy != "online" and self.tiling.held,
            "BY_PLACE": not self.tiling.held,
            "PARTS": self.tiling.parts,
            "WORDS": self.tiling.words_per_tile,
            "LANES": max(self._most_threads(device), numbers) if shared else 1,
            "POLL": device.vendor.poll,
            "POLLS": polls.value if polls else 1,
            "WALK": self.tiling.walk,
            "AXIS": 0 if self.across else 1,
            "DEPTH": self.depth,
            "FLAT": self.scattered or not self.across,
            "TURNED": self.turned,
            "LOG": self.form == "log_softmax",
            "NEGATE": self.form == "softmin",
            "STAGES": self.tiling.num_stages or 1,
            "EXACT": DTYPE_BYTES[self.y_dtype] > 2,
            "COMPUTE": tl.float64 if self.y_dtype == "float64" else tl.float32,
            "BACKWARD": self.backward,
            "ROUND": getattr(tl, self.y_dtype),
        }
        taken = self.kernel.arg_names
        return {name: value for name, value in values.items() if name in taken}

    def _most_threads(self, device: Device) -> int:
        """Returns the threads of a program, or the most that it may have if the vendor's compiler chooses its warps."""
        if self.tiling.num_warps is None:
            return device.hardware.max_threads_per_program or 1
        return self.tiling.num_warps * (device.hardware.warp_size or 1)


def compile_kernel(spec: KernelSpec, device: Device) -> Any:
    """Returns Triton's CompiledKernel; kept.

    Raises:
        CompileError: see compiler.compile_for; or the vendor's compiler is known to get such a kernel wrong.
    """
    key = spec, device.backend, device.arch, device.index  # a loaded kernel belongs to one device; products share the rest
    with _compiling:
        if key not in _compiled:
            tiling = spec.tiling
            options = tiling.num_warps, tiling.num_stages, tiling.max_registers, tiling.pieces > 1 and tiling.held
            compiled = compiler.compile_for(device, spec.kernel, spec.signature(), spec.constexprs(device), *options)
            if fault := device.vendor.known_fault(compiled):
                raise CompileError(f"{tiling} is not used: {fault}")
            _compiled[key] = compiled
        return _compiled[key]


@functools.cache
def resources_of(spec: KernelSpec, device: Device) -> KernelResources:
    """Reads what a program of the compiled kernel uses; kept, as new row counts are planned with kernels that are here.

    Raises:
        CompileError: see compiler.compile_for.
    """
    return device.vendor.resources(compile_kernel(spec, device))
