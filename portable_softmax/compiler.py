"""Compiles the kernel for any target, here or not, with Triton 3.2 to 3.9 and triton-ascend 3.2.

Everything that a kernel is specialised on stands in its KernelSpec: sizes and strides have fixed integer types and are
never specialised on their values, so a kept kernel is right for every problem of the same spec.
"""

import functools
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from portable_softmax.device import Device, interpreting
from portable_softmax.errors import CompileError
from portable_softmax.planner import Problem, Tiling

TRITON_NAMES = {"float16": "fp16", "bfloat16": "bf16", "float32": "fp32", "float64": "fp64"}
SIZES = {"n_rows": "i64", "n_col_vectors": "i32", "x_row_vectors": "i64", "y_row_vectors": "i64"}

_lock = threading.Lock()


@dataclass(frozen=True)
class KernelSpec:
    """One specialisation of the kernel."""

    x_dtype: str
    y_dtype: str
    vector: int
    aligned: bool
    tiling: Tiling

    @classmethod
    def of(cls, problem: Problem, tiling: Tiling) -> "KernelSpec":
        return cls(problem.x_dtype, problem.y_dtype, problem.vector, problem.aligned, tiling)

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


def launcher(spec: KernelSpec, device: Device) -> Callable[..., Any]:
    """`launch(grid, *arguments)` for the compiled kernel, on the current stream of the current device."""
    from portable_softmax.kernels import softmax_kernel

    constexprs = spec.constexprs()
    if interpreting():
        return lambda grid, *arguments: softmax_kernel[grid](*arguments, **constexprs)
    kernel = compile_kernel(spec, device)
    # From Triton 3.3 on, a compiled kernel is called with its constexprs too.
    trailing = () if _triton_version() < (3, 3) else tuple(constexprs.values())
    return lambda grid, *arguments: kernel[grid](*arguments, *trailing)


def compile_kernel(spec: KernelSpec, device: Device) -> Any:
    """Triton's CompiledKernel for the device's architecture; kept.

    Raises:
        CompileError: in the compiler's own words, or because this Triton cannot compile for the architecture offline.
    """
    with _lock:
        return _compile(spec, device)


@functools.cache
def _compile(spec: KernelSpec, device: Device) -> Any:
    import triton
    from triton.backends.compiler import GPUTarget

    if interpreting():
        raise CompileError("TRITON_INTERPRET is set, so nothing can be compiled; unset it to plan for a device that compiles")
    target = GPUTarget(device.backend, device.arch, device.hardware.warp_size or 0)
    options = device.vendor.compile_options(spec.tiling.num_warps, spec.tiling.num_stages)
    try:
        return triton.compile(_source(spec), target=target, options=options)
    except Exception as error:  # every stage of every backend has its own exceptions
        raise CompileError(f"{device.backend}/{device.arch}, {spec.x_dtype} -> {spec.y_dtype}: {error}") from error


def check_target(device: Device) -> None:
    """Some releases of Triton end the whole process when asked for an architecture that they do not know.

    Raises:
        CompileError: this one is too old for the device, which is not here to ask.
    """
    first = device.profile.first_triton
    if device.index is None and first and _triton_version() < tuple(map(int, first.split(".")[:2])):
        raise CompileError(
            f"Triton {'.'.join(map(str, _triton_version()))} does not compile for {device.backend}/{device.arch} "
            f"without the device; install Triton {first} or later"
        )


def _source(spec: KernelSpec) -> Any:
    from triton.compiler import ASTSource

    from portable_softmax.kernels import softmax_kernel

    pointers = {"y_ptr": f"*{TRITON_NAMES[spec.y_dtype]}", "x_ptr": f"*{TRITON_NAMES[spec.x_dtype]}"}
    signature, constexprs = {**pointers, **SIZES}, spec.constexprs()
    aligned = [0, 1] if spec.aligned else []
    if _triton_version() < (3, 3):
        from triton.backends.compiler import AttrsDescriptor

        attributes = AttrsDescriptor.from_hints(dict.fromkeys(aligned, 16))
        return ASTSource(softmax_kernel, signature=signature, constants=constexprs, attrs=attributes)
    return ASTSource(
        softmax_kernel,
        signature=signature | dict.fromkeys(constexprs, "constexpr"),
        constexprs={(softmax_kernel.arg_names.index(name),): value for name, value in constexprs.items()},
        attrs={(index,): [["tt.divisibility", 16]] for index in aligned},
    )


@functools.cache
def _triton_version() -> tuple[int, int]:
    import triton

    major, minor = triton.__version__.split(".")[:2]
    return int(major), int(minor)
