"""Each kind of plan compiles with other releases of Triton, which `scripts/with_triton.sh` downloads unless they are there.

With a release this file is run as a program, which compiles for the devices that it compiles for offline.
"""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import triton

from portable_probe.tune.launches import row_kernel
from portable_softmax import Device, inspect_kernel
from portable_softmax.errors import TargetError
from portable_softmax.planning.operands import TOKEN_LOG_PROBS, contiguous_problem
from portable_softmax.planning.problem import LogProbs, Scores
from portable_softmax.planning.tiling import Tiling
from portable_softmax.runtime.compile import compiled
from portable_softmax.runtime.kernel import kernels_of
from portable_softmax.runtime.plans import plan_problem

ROOT = Path(__file__).parents[2]
OLDEST = "3.2.0"  # which triton-ascend extends
RELEASES = OLDEST, "3.3.1", "3.4.0", "3.5.1", "3.6.0", "3.7.0", "3.9.0"
DEVICES = "nvidia/h100-sxm", "amd/mi300x"
AMD = (3, 5)  # the first release that compiles for an AMD device that is not here
SPLITS = Tiling(1, 1024, 4, splits=16, blocks=8, in_registers=False, two_launches=True)
SCORES = Scores(scale="number", mask="bool", causal="upper_left")
ENTROPY = replace(contiguous_problem(8, 128_256, "bfloat16", TOKEN_LOG_PROBS), log_probs=LogProbs(entropy=True))
BITS = contiguous_problem(11, 504, "float32", TOKEN_LOG_PROBS, scores=Scores(cap=50.0, mask="bits", zero_rows=True))
KINDS = {  # problems, and their tilings unless they are planned
    "scores": (contiguous_problem(4096, 2048, "float32", scores=SCORES), None),
    "bits": (BITS, Tiling(4, 512, 1, walk=False)),  # that LLVM in Triton 3.6 compiled wrongly once
    "softmax": (contiguous_problem(8, 50_257, "bfloat16"), None),  # programs share unaligned rows
    "gradient": (contiguous_problem(4096, 151_936, "bfloat16", backward=True), None),  # which are read twice
    "log-probabilities": (contiguous_problem(4096, 32_768, "bfloat16", TOKEN_LOG_PROBS), None),
    "softmax in two launches": (contiguous_problem(8, 128_256, "bfloat16"), SPLITS),
    "gradient in two launches": (contiguous_problem(8, 128_256, "float32", backward=True), SPLITS),
    "entropy in two launches": (ENTROPY, SPLITS),
}
QUICK = "scores", "softmax in two launches"  # of the oldest release


@pytest.mark.parametrize(
    ("release", "kinds"), [(OLDEST, QUICK), *(pytest.param(release, KINDS, marks=pytest.mark.slow) for release in RELEASES)]
)
def test_each_kind_of_plan_compiles(release, kinds, tmp_path):
    version = tuple(map(int, release.split(".")[:2]))
    if sys.version_info >= (3, 14) and version < (3, 5):
        pytest.skip("it has no wheel for this Python")
    without = {name: value for name, value in os.environ.items() if name not in ("TRITON_INTERPRET", "PYTHONPATH")}
    command = ["bash", ROOT / "scripts/with_triton.sh", release, __file__, *kinds]
    environment = without | {"TRITON_CACHE_DIR": str(tmp_path)}
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr[-2000:]
    assert ran.stdout.split() == ["triton", release, *(DEVICES if version >= AMD else DEVICES[:1]), *by_ascend()]


def compile_all(device, kinds):
    """Compiles a kernel of users, and some of this package."""
    rows = {"y": "bf16[64,999]", "x": "bf16[64,999]", "n_rows": 64, "n_cols": 999}
    inspect_kernel(row_kernel, rows, device=device, BLOCK=64)
    for problem, tiling in (KINDS[kind] for kind in kinds):
        if tiling is None:
            problem, tiling, reasons = (plan := plan_problem(problem, device)).problem, plan.tiling, plan.reasons
            assert not [reason for reason in reasons if "does not compile" in reason and "has no tuples" not in reason]
        for kernel in kernels_of(problem, tiling, device):
            compiled(kernel, device)


def by_ascend():
    """Returns the words for what Ascend's compiler says of a plan, which must not depend on Triton; none without it."""
    npu = Device.from_profile("ascend/910b3")
    return f"{npu.name} {plan_problem(KINDS['scores'][0], npu).resources.compiler}".split() if not npu.vendor.missing() else []


if __name__ == "__main__":
    print("triton", triton.__version__)
    for name in DEVICES:
        try:
            compile_all(Device.from_profile(name), sys.argv[1:])
            print(name)
        except TargetError as error:
            print(f"{name}: {error}", file=sys.stderr)
    print(*by_ascend())
