#!/usr/bin/env bash
# What CI does on one device, a step at a time or `all`; here just as there: DEVICE=cuda bash scripts/hardware.sh probe
#   DEVICE   backend that must be here: cuda, hip, npu, xpu or interpreter
#   PROFILE  the profile that the device must have, if it matters
#   SETUP    shell command before each step, such as `source .../set_env.sh`
#   PACKAGES for the Python that is there, before .venv is made: a build of torch and Triton for the device, if there is none
#   RESULTS, LAST  folders: of this run (results), and of the last one, if there is any (last)
#   ACCEPT   1 makes this run's plans the baseline, whatever they are: a regression fails until then
set -euo pipefail
[ "${1:-}" != --help ] || { sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0"; exit; }
cd "$(dirname "$0")/.."
: "${DEVICE:?is cuda, hip, npu, xpu or interpreter}" "${PROFILE:=}" "${SETUP:=true}" "${PACKAGES:=}" "${RESULTS:=results}" "${LAST:=last}" "${ACCEPT:=}"
set +u
eval "$SETUP"
set -u
source scripts/environment.sh
[ "$DEVICE" != interpreter ] || export TRITON_INTERPRET=1
mkdir -p "$RESULTS"

summary() { # Markdown, for people: the step summary on GitHub, and the output
    tee -a "${GITHUB_STEP_SUMMARY:-/dev/null}"
}

setup() {
    [ -z "$PACKAGES" ] || "${PYTHON:-python3}" -m pip install $PACKAGES
    set_up --group test
}

probe() {
    portable-softmax plan --on "$DEVICE" --json >"$RESULTS/probe.json.new"
    mv "$RESULTS/probe.json.new" "$RESULTS/probe.json" # a probe that fails leaves the last answer
    { echo '```'; portable-softmax plan --on "$DEVICE" --facts --explain; echo '```'; } | summary
}

regression() {
    local softmaxes=(--shapes 4096x781 4096x4096 4096x12672 128x151936 --dtype float32 bfloat16)
    [ "$DEVICE" != interpreter ] || softmaxes=(--shapes 16x65 16x781 --dtype float32 bfloat16)
    portable-softmax verify --on "$DEVICE" "${softmaxes[@]}" --markdown | summary
    local code=0
    if [ -f "$LAST/accepted" ]; then
        portable-softmax diff "$LAST/accepted" --save "$RESULTS/plans.json" --markdown | summary || code=$?
    else
        portable-softmax plan --on "$DEVICE" "${softmaxes[@]}" --save "$RESULTS/plans.json" --markdown | summary
    fi
    [ -z "$ACCEPT" ] || [ "$code" != 3 ] || code=0
    if [ "$code" = 0 ]; then cp "$RESULTS/plans.json" "$RESULTS/accepted"; else cp "$LAST/accepted" "$RESULTS/accepted"; fi
    return "$code"
}

tests() {
    python -m pytest -m "kernel and not slow" --device "$DEVICE" ${PROFILE:+--on "$PROFILE"} --junit-xml="$RESULTS/tests.xml"
}

benchmark() {
    if [ "$DEVICE" = interpreter ]; then
        echo "The interpreter's speed is no device's." >&2
    else
        python scripts/benchmark --quick --out "$RESULTS/benchmark.csv"
    fi
}

[ $# -gt 0 ] || set -- all
[ "$1" != all ] || set -- setup probe regression tests benchmark
[ "$1" = setup ] || PATH=$PWD/.venv/bin:$PATH
for step; do
    case $step in setup | probe | regression | tests | benchmark) ;; *) echo "no step $step; there are setup, probe, regression, tests, benchmark" >&2; exit 2 ;; esac
    echo "== $step" >&2
    "$step"
done
