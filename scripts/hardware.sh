#!/usr/bin/env bash
# What CI does on one device, some steps or `all`, on any machine: DEVICE=cuda bash scripts/hardware.sh probe
#   DEVICE   backend that must be here: cuda, hip, npu, xpu or interpreter; offline: plans of all profiles, without a device
#   PROFILE  the profile that the device must have, if it matters
#   SETUP    shell command before each step, such as `source .../set_env.sh`
#   PACKAGES for the Python that is there, before .venv is made: a build of torch and Triton for the device, if there is none
#   RESULTS, LAST  folders: of this run (results), and of the last one, if there is any (last)
#   ACCEPT   1 makes this run's plans the baseline, whatever they are: a regression fails until then
set -euo pipefail
[ "${1:-}" != --help ] || { sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0"; exit; }
cd "$(dirname "$0")/.."
: "${DEVICE:?is cuda, hip, npu, xpu, interpreter or offline}" "${PROFILE:=}" "${SETUP:=}" "${PACKAGES:=}" "${RESULTS:=results}" "${LAST:=last}"
set +u
eval "${SETUP:-true}"
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

probe() { # the interpreter compiles nothing
    [ "$DEVICE" != interpreter ] || { portable-softmax profiles show interpreter; return; }
    portable-softmax plan --on "$DEVICE" --json >"$RESULTS/probe.json"
    { echo '```'; portable-softmax plan --on "$DEVICE" --facts --explain; echo '```'; } | summary
}

quality() {
    python -m pytest -n auto --dist loadgroup tests/runtime/test_static_quality.py --junit-xml="$RESULTS/quality.xml"
}

regression() {
    local on=("$DEVICE") softmaxes=(--shapes 4096x781 4096x4096 4096x12672 128x151936 --dtype float32 bfloat16) code=0
    case $DEVICE in
        interpreter) portable-softmax verify --on interpreter --shapes 16x65 16x781 --markdown | summary; return ;;
        offline) mapfile -t on < <(portable-softmax profiles | awk 'NR > 1 && $1 !~ /^(intel|triton)/ {print $1}') ;; # others need triton-xpu
    esac
    [ "$DEVICE" = offline ] || portable-softmax verify --on "$DEVICE" "${softmaxes[@]}" --markdown | summary
    if [ -f "$LAST/accepted" ]; then
        portable-softmax diff "$LAST/accepted" --save "$RESULTS/plans.json" --markdown | summary || code=$?
    else
        portable-softmax plan --on "${on[@]}" "${softmaxes[@]}" --save "$RESULTS/plans.json" --markdown | summary
    fi
    [ -z "${ACCEPT:-}" ] || [ "$code" != 3 ] || code=0
    if [ "$code" = 0 ]; then cp "$RESULTS/plans.json" "$RESULTS/accepted"; else cp "$LAST/accepted" "$RESULTS/accepted"; fi
    return "$code"
}

tests() {
    python -m pytest -m "kernel and not slow" --device "$DEVICE" ${PROFILE:+--on "$PROFILE"} --junit-xml="$RESULTS/tests.xml"
}

benchmark() {
    [ "$DEVICE" = interpreter ] || python scripts/benchmark --quick --out "$RESULTS/benchmark.csv" # its speed is no device's
}

[ "${*:-all}" != all ] || set -- setup probe regression tests benchmark
[ "$1" = setup ] || PATH=$PWD/.venv/bin:$PATH
for step; do
    echo "== $step" >&2
    case $step in
        setup | probe | quality | regression | tests | benchmark) "$step" ;;
        *) echo "no step $step; there are setup, probe, quality, regression, tests, benchmark" >&2; exit 2 ;;
    esac
done
