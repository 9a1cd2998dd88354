"""Triton's compiler for Ascend where there is no CANN: the IR of the Triton that is installed, then Ascend's own compiler."""

import contextlib
import json
import re
import threading
from collections.abc import Iterator
from typing import Any

from portable_softmax.devices.backends.npu_compiler import FLAGS, IDENTITY, lowered, missing, planned

PLAN = "plan"  # the last stage
LIBDEVICE = re.compile(r'"__nv_((?:atan|ilogb|isinf|isnan|ldexp|log1p|pow|round|tan|tanh)f)"')  # Ascend has them as __hmf_
_one_at_a_time = threading.RLock()  # Triton has one table of backends for all threads


@contextlib.contextmanager
def offline() -> Iterator[None]:
    """Makes Triton compile for Ascend up to the memory plan; leaves Triton as it is where Ascend's compiler is missing."""
    from triton.backends import Backend, backends

    with _one_at_a_time, contextlib.ExitStack() as replaced:
        front_end = backends.get("ascend") or backends.get("nvidia")
        if front_end and not missing():
            replaced.callback(backends.update, backends.copy())
            replaced.callback(backends.pop, "ascend")
            backends["ascend"] = Backend(_up_to_the_plan(front_end.compiler), front_end.driver)
        yield


def _up_to_the_plan(compiler: Any) -> Any:
    from triton.backends.compiler import GPUTarget

    class Compiler(compiler):  # type: ignore[misc]
        def __init__(self, target: Any) -> None:
            self.target, self.binary_ext = target if compiler.supports_target(target) else GPUTarget("cuda", 80, 32), PLAN
            self.arch = target.arch  # which a kernel from Triton's cache keeps
            self.capability = self.target.arch  # which stages of Triton 3.2 read

        @staticmethod
        def supports_target(target: Any) -> bool:
            return bool(target.backend == "npu")

        def add_stages(self, stages: dict[str, Any], options: Any, *arguments: Any) -> None:
            super().add_stages(stages, options, *arguments)
            make, own = stages["ttir"], {name: getattr(options, name) for name in FLAGS}

            def make_ttir(source: Any, metadata: dict[str, Any]) -> Any:
                module = make(source, metadata)
                name = re.findall(r"tt\.func public @([\w$.-]+)", str(module))[0]
                metadata |= {"name": name, "shared": 0}  # which later stages would add
                return module

            stages.clear()
            stages["ttir"] = make_ttir
            stages["ttadapter"] = lambda module, _: lowered(LIBDEVICE.sub(r'"__hmf_\1"', str(module)), self.arch)
            stages[PLAN] = lambda linalg, _: json.dumps(vars(planned(linalg, self.arch, own)))

        def parse_options(self, options: dict[str, Any]) -> Any:
            parsed = super().parse_options({name: value for name, value in options.items() if name not in FLAGS})
            vars(parsed).update({name: options.get(name) for name in FLAGS})
            return parsed

        def hash(self) -> str:
            return f"{IDENTITY}, {self.arch}, {super().hash()}"

        def pack_metadata(self, metadata: Any) -> tuple[()]:
            return ()

    return Compiler
