"""One specialisation of one of the package's kernels, compiled once.

Everything that a kernel is specialised on stands in its KernelSpec: sizes and strides have fixed integer types and are
never specialised on their values, so a kept kernel is right for every problem of the same spec.
"""

import functools
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from portable_softmax import compiler
from portable_softmax.device import Device, interpreting
from portable_softmax.problem import Problem, Tiling

TRITON_NAMES = {"float16": "fp16", "bfloat16": "bf16", "float32": "fp32", "float64": "fp64"}

_compiling = threading.Lock()
_compiled: dict[tuple[Any, ...], Any] = {}


@dataclass(frozen=True)
class KernelSpec:
    """What a kernel is compiled for, beside the device; see Problem."""

    x_dtype: str
    y_dtype: str
    vector: int
    aligned: bool
    tiling: Tiling
    form: str = "softmax"
    backward: bool = False
    across: bool = False
    ragged: bool = False
    padded: bool = True
    exchange: str = "none"

    @classmethod
    def of(cls, problem: Problem, tiling: Tiling, exchange: str | None = None) -> "KernelSpec":
        """Of the launch for one of the tiling's exchanges, or of the one that writes the result."""
        return cls(
            problem.x_dtype,
            problem.y_dtype,
            problem.vector,
            problem.aligned,
            tiling,
            problem.form,
            problem.backward,
            problem.across,
            problem.ragged,
            problem.ragged or problem.n_cols % tiling.tile_cols != 0,
            exchange or tiling.exchanges[-1],
        )

    @property
    def kernel(self) -> Any:
        """The @triton.jit function."""
        from portable_softmax import gradient_kernel, kernels

        return gradient_kernel.softmax_backward_kernel if self.backward else kernels.softmax_kernel

    def signature(self) -> dict[str, str]:
        dtypes = {"y": self.y_dtype, "x": self.x_dtype}
        if self.backward:
            dtypes = {"dx": self.x_dtype, "dy": self.y_dtype, "y": self.y_dtype}
        alignment = ":16" if self.aligned else ""
        return {
            **{f"{name}_ptr": f"*{TRITON_NAMES[dtype]}{alignment}" for name, dtype in dtypes.items()},
            "n_lines": "i64",
            "n_line_vectors": "i32",
            **{f"{name}_line_vectors": "i64" for name in dtypes},
            "n_matrices": "i64",
            **{f"{name}_matrix_vectors": "i64" for name in dtypes},
            **({} if self.exchange == "none" else {"words_ptr": "*i64:16"}),
        }

    def constexprs(self, device: Device) -> dict[str, Any]:
        import triton.language as tl

        return {
            **({"words_ptr": None} if self.exchange == "none" else {}),
            "VECTOR": self.vector,
            "RAGGED": self.ragged,
            "PADDED": self.padded,
            "TILE_ROWS": self.tiling.tile_rows,
            "TILE_COLS": self.tiling.tile_cols,
            "PIECES": self.tiling.pieces,
            "ONE_TILE": self.tiling.strategy != "online",
            "PARTS": self.tiling.parts,
            "EXCHANGE": self.exchange,
            "LANES": device.hardware.warp_size or 32,
            "AXIS": 0 if self.across else 1,
            "LOG": self.form == "log_softmax",
            "NEGATE": self.form == "softmin",
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
            tiling, cooperative = spec.tiling, spec.tiling.strategy == "cooperative"
            if tiling.strategy == "ordered":
                compiler.check_cooperative(device)  # which it becomes where all programs turn out to fit at once
            options = tiling.num_warps, tiling.num_stages, cooperative, tiling.max_registers, tiling.pieces > 1
            _compiled[key] = compiler.compile_for(device, spec.kernel, spec.signature(), spec.constexprs(device), *options)
        return _compiled[key]


@functools.cache
def launcher(spec: KernelSpec, device: Device) -> Callable[..., Any]:
    """`launch(grid, *arguments)`; kept."""
    if interpreting():
        constexprs = spec.constexprs(device)
        return lambda grid, *arguments: spec.kernel[grid](*arguments, **constexprs)
    return compiler.launcher(compile_kernel(spec, device), spec.constexprs(device), device.index)
