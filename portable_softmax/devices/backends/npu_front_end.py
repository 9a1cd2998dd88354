"""Triton's front end for Ascend without CANN: it produces the IR of a kernel, without later stages."""

import contextlib
import dataclasses
import re
from collections.abc import Iterator
from typing import Any

# Options of triton-ascend's compiler, which an IR does not depend on (NPUOptions in third_party/ascend/backend/compiler.py).
OPTIONS = (
    "multibuffer", "enable_ubuf_saving", "enable_auto_bind_sub_block", "enable_select_analysis",
    "enable_hivm_auto_cv_balance", "sync_solver", "unit_flag", "inject_barrier_all", "inject_block_all",
    "limit_auto_multi_buffer_only_for_local_buffer", "tile_mix_cube_loop", "limit_auto_multi_buffer_of_local_buffer",
    "set_workspace_multibuffer", "tile_mix_vector_loop", "disable_auto_inject_block_sync", "enable_mixed_cv",
    "enable_vf_fusion", "auto_blockify_size", "parallel_mode",
)  # fmt: skip
BINARY = "nothing"  # the stage that is the last one to Triton


@contextlib.contextmanager
def front_end() -> Iterator[None]:
    """Makes Triton's compiler stop after its own IR for Ascend: triton-ascend's, or else the release's first backend's."""
    from triton.backends import Backend, backends
    from triton.backends.compiler import GPUTarget

    name = "ascend" if "ascend" in backends else "nvidia"
    if name not in backends:  # another vendor's Triton, which then reports its targets
        yield
        return
    before = backends.get("ascend")
    backends["ascend"] = Backend(_ending_with_ir(backends[name].compiler, GPUTarget), backends[name].driver)
    try:
        yield
    finally:
        backends.pop("ascend")
        backends.update({"ascend": before} if before else {})


def _named(module: Any, metadata: dict[str, Any]) -> Any:
    """Adds the metadata that later stages would read from the IR."""
    match = re.search(r"tt\.func public @([\w$.-]+)", str(module))
    metadata |= {"name": match[1] if match else "kernel", "shared": 0}
    return module


def _ending_with_ir(compiler: Any, make_target: Any) -> Any:
    class FrontEnd(compiler):  # type: ignore[misc]
        def __init__(self, target: Any) -> None:
            self.target, self.binary_ext = target if compiler.supports_target(target) else make_target("cuda", 80, 32), BINARY
            self.arch = target.arch  # which a kernel from Triton's cache keeps
            self.capability = self.target.arch  # which stages of Triton 3.2 read

        @staticmethod
        def supports_target(target: Any) -> bool:
            return bool(target.backend == "npu")

        def add_stages(self, stages: dict[str, Any], *arguments: Any) -> None:
            super().add_stages(stages, *arguments)
            make = stages.pop("ttir")
            stages.clear()
            stages["ttir"] = lambda source, metadata: _named(make(source, metadata), metadata)
            stages[BINARY] = lambda source, metadata: b""

        def parse_options(self, options: dict[str, Any]) -> Any:
            """Returns the options of the backend that makes the IR, and Ascend's; Ascend's own backend has both."""
            parsed = super().parse_options({name: value for name, value in options.items() if name not in OPTIONS})
            own = {name: options.get(name) for name in OPTIONS if not hasattr(parsed, name)}
            fields = [(name, Any, dataclasses.field(default=None)) for name in own]
            kind = dataclasses.make_dataclass(type(parsed).__name__, fields, bases=(type(parsed),), frozen=True)
            return kind(**vars(parsed), **own) if own else super().parse_options(options)

        def hash(self) -> str:
            return f"only IR, {self.arch}, {super().hash()}"

        def pack_metadata(self, metadata: Any) -> tuple[()]:
            return ()

    return FrontEnd
