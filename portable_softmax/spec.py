"""One specialisation of the package's kernel, compiled once.

Everything that the kernel is specialised on stands in its KernelSpec: sizes and strides have fixed integer types and are
never specialised on their values, so a kept kernel is right for every problem of the same spec.
"""

import functools
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from portable_softmax import compiler
from portable_softmax.device import Device, interpreting
from portable_softmax.planner import Problem, Tiling

TRITON_NAMES = {"float16": "fp16", "bfloat16": "bf16", "float32": "fp32", "float64": "fp64"}

_compiling = threading.Lock()
_compiled: dict[tuple[Any, ...], Any] = {}


@dataclass(frozen=True)
class KernelSpec:
    """What the kernel is compiled for, beside the device."""

    x_dtype: str
    y_dtype: str
    vector: int
    aligned: bool
    tiling: Tiling

    @classmethod
    def of(cls, problem: Problem, tiling: Tiling) -> "KernelSpec":
        return cls(problem.x_dtype, problem.y_dtype, problem.vector, problem.aligned, tiling)

    def signature(self) -> dict[str, str]:
        alignment = ":16" if self.aligned else ""
        return {
            "y_ptr": f"*{TRITON_NAMES[self.y_dtype]}{alignment}",
            "x_ptr": f"*{TRITON_NAMES[self.x_dtype]}{alignment}",
            "n_rows": "i64",
            "n_col_vectors": "i32",
            "x_row_vectors": "i64",
            "y_row_vectors": "i64",
        }

    def constexprs(self) -> dict[str, Any]:
        import triton.language as tl

        return {
            "VECTOR": self.vector,
            "TILE_ROWS": self.tiling.tile_rows,
            "TILE_COLS": self.tiling.tile_cols,
            "ONE_TILE": self.tiling.strategy == "tile",
            "STAGES": self.tiling.num_stages or 1,
            "COMPUTE": tl.float64 if self.y_dtype == "float64" else tl.float32,
        }


def compile_kernel(spec: KernelSpec, device: Device) -> Any:
    """Triton's CompiledKernel; kept.

    Raises:
        CompileError: see compiler.compile_for.
    """
    key = spec, device.backend, device.arch, device.index  # a loaded kernel belongs to one device; products share the rest
    with _compiling:
        if key not in _compiled:
            from portable_softmax.kernels import softmax_kernel

            options = spec.tiling.num_warps, spec.tiling.num_stages
            _compiled[key] = compiler.compile_for(device, softmax_kernel, spec.signature(), spec.constexprs(), *options)
        return _compiled[key]


@functools.cache
def launcher(spec: KernelSpec, device: Device) -> Callable[..., Any]:
    """`launch(grid, *arguments)`; kept."""
    if interpreting():
        from portable_softmax.kernels import softmax_kernel

        constexprs = spec.constexprs()
        return lambda grid, *arguments: softmax_kernel[grid](*arguments, **constexprs)
    return compiler.launcher(compile_kernel(spec, device), spec.constexprs())
