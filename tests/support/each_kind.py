"""Compiles a plan of each kind with the Triton that is installed, for a device of each vendor that it compiles for offline."""

import sys
from dataclasses import replace
from itertools import product

import triton

from portable_probe.tune.launches import row_kernel
from portable_softmax import Device, inspect_kernel
from portable_softmax.errors import TargetError
from portable_softmax.planning.operands import TOKEN_LOG_PROBS, contiguous_problem
from portable_softmax.planning.plan import Tiling
from portable_softmax.planning.problem import LogProbs, Scores
from portable_softmax.runtime.compiled import compile_kernel
from portable_softmax.runtime.plans import plan_problem
from portable_softmax.runtime.specialization import KernelSpec

DEVICES = "nvidia/h100-sxm", "amd/mi300x"
SCORES = Scores(scale="number", mask="bool", causal="upper_left")
PROBLEMS = {
    "softmax": contiguous_problem(8, 50_257, "bfloat16"),  # programs share unaligned rows
    "gradient": contiguous_problem(4096, 151_936, "bfloat16", backward=True),  # which are read twice
    "scores": contiguous_problem(4096, 2048, "float32", scores=SCORES),
    "log-probabilities": contiguous_problem(4096, 32_768, "bfloat16", TOKEN_LOG_PROBS),
}
HALVES = [  # of two launches
    contiguous_problem(8, 128_256, "bfloat16"),
    contiguous_problem(8, 128_256, "float32", backward=True),
    replace(contiguous_problem(8, 128_256, "bfloat16", TOKEN_LOG_PROBS), log_probs=LogProbs(entropy=True)),
]
SPLITS = Tiling(1, 1024, 4, 1, splits=16, blocks=8, held=False, two_launches=True)


def main() -> None:
    """Prints Triton's version, and a line for each device."""
    print(f"triton {triton.__version__}")
    for name in DEVICES:
        try:
            for kind, problem in PROBLEMS.items():
                device = Device.from_profile(name)
                plan = plan_problem(problem, device)
                failed = [reason for reason in plan.reasons if "does not compile" in reason and "has no tuples" not in reason]
                assert not failed, (name, kind, failed)
            inspect_kernel(
                row_kernel, {"y": "bf16[64,999]", "x": "bf16[64,999]", "n_rows": 64, "n_cols": 999}, device=name, BLOCK=64
            )
            for problem, step in product(HALVES, ("reduce", "map")):
                compile_kernel(replace(KernelSpec.of(problem, SPLITS), step=step), device)
        except TargetError as error:
            print(f"{name}: {error}", file=sys.stderr)
        else:
            print(f"{name}: {len(PROBLEMS)} plans")
    npu = Device.from_profile("ascend/910b3")
    if npu.vendor.missing() is None:
        print(f"{npu.name}: {plan_problem(PROBLEMS['scores'], npu).resources.compiler}")


if __name__ == "__main__":
    main()
