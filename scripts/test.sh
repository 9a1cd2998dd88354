#!/usr/bin/env bash
# Sets up .venv; then lint, types, and the tests: without a device, the kernel in Triton's interpreter, the Ascend path on a
# virtual NPU and by Ascend's compiler where they can be set up; REQUIRE_VIRTUAL_NPU=1 fails where they cannot.
#   --all             slow tests too, and plans with another Triton
#   --device cuda     on a machine with an accelerator (or hip, npu, xpu); this and all other arguments go to pytest
#   RESULTS=DIR       keeps JUnit files
set -euo pipefail
[ "${1:-}" != --help ] || { sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0"; exit; }
cd "$(dirname "$0")/.."
source scripts/environment.sh
all=
[ "${1:-}" != --all ] || { all=1; shift; }
if [ "$all" ]; then
    quick= workers="-n auto --dist loadgroup"
    echo "All tests: 45 minutes on two idle cores, plus downloads." >&2
else
    quick=" and not slow" workers=
    echo "4 minutes on two idle cores, plus downloads. Left out, and in \`bash scripts/test.sh --all\` (45 minutes):
tests marked slow, most cases of sweeps among them, and more plans with other Tritons." >&2
fi
results() { [ -z "${RESULTS:-}" ] || echo "--junit-xml=$RESULTS/$1.xml"; }
step() { echo "== $SECONDS s: $*" >&2; }

step set up
set_up --group test
set_up_ascend || [ -z "${REQUIRE_VIRTUAL_NPU:-}" ]
bash scripts/virtual_npu.sh ${REQUIRE_VIRTUAL_NPU:+--required} --install & # beside what follows
bash scripts/with_triton.sh 3.2.0 -c "" || true & # of tests/runtime/test_other_tritons.py
tritons=$!
step lint and types
ruff check .
ruff format --check .
mypy
check-jsonschema --builtin-schema vendor.github-workflows .github/workflows/*.yml examples/*_vendors.yml
wait $tritons
step no kernel runs, and beside it kernels # in one process each, which compiles nothing twice; with --all in one for each core
log=$(mktemp)
trap 'rm -f "$log"' EXIT
case " $* " in
    *" --device "*) python -m pytest -m "kernel$quick" $(results kernels) "$@" ;;
    *) python -m pytest $workers -m "kernel and not accelerator$quick" --device interpreter $(results kernels) "$@" ;;
esac >"$log" 2>&1 &
kernels=$! failed=
python -m pytest $workers -m "not kernel$quick" $(results offline) "$@" || failed=1
wait $kernels || failed=1
step kernels
cat "$log"
[ -z "$failed" ]
if [ "$all" ]; then
    other=3.6.0 # the Triton of torch 2.11, which spills elsewhere
    step "Triton $other"
    bash scripts/with_triton.sh $other -m pytest -q tests/planning/test_never_refused.py -k compilers
    bash scripts/with_triton.sh $other -m pytest -q tests/runtime/test_static_quality.py -m "not slow"
fi
step virtual NPU
wait
bash scripts/virtual_npu.sh ${REQUIRE_VIRTUAL_NPU:+--required} -m "${quick# and }"
step done, in these user and system seconds of scripts and of all that they started
times >&2
