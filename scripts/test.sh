#!/usr/bin/env bash
# Sets up .venv; then lint, types, and the tests: without a device, and the kernel in Triton's interpreter.
# Last the Ascend path on a virtual NPU, where that can be set up; REQUIRE_VIRTUAL_NPU=1 fails where it cannot.
# On a machine with an accelerator: bash scripts/test.sh --device cuda (or hip, npu, xpu). Other arguments go to pytest.
set -euo pipefail
[ "${1:-}" != --help ] || { sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0"; exit; }
cd "$(dirname "$0")/.."
source scripts/environment.sh
set_up --group test
results() { [ -z "${RESULTS:-}" ] || echo "--junit-xml=$RESULTS/$1.xml"; } # RESULTS=DIR keeps them for `portable-softmax report`
ruff check .
ruff format --check .
mypy
python -m pytest -n 2 --dist loadgroup -m "not kernel and not slow" $(results offline) "$@"
case " $* " in
    *" --device "*) python -m pytest -m "kernel and not slow" $(results kernels) "$@" ;;
    *) python -m pytest -n 2 -m "kernel and not accelerator and not slow" --device interpreter $(results kernels) "$@" ;;
esac
other=3.6.0 # the Triton of torch 2.11, which spills elsewhere
bash scripts/with_triton.sh $other scripts/random_plans.py nvidia/h200 amd/mi300x --problems 40
bash scripts/with_triton.sh $other -m pytest -q tests/runtime/test_divisions.py
bash scripts/virtual_npu.sh ${REQUIRE_VIRTUAL_NPU:+--required}
