#!/usr/bin/env bash
# Plans of every profile and the static quality of their kernels, with no device; what changed since the last run; a page.
#   RESULTS, LAST  folders: of this run (results), and of the last one, if there is any (last)
set -euo pipefail
[ "${1:-}" != --help ] || { sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0"; exit; }
cd "$(dirname "$0")/.."
source scripts/environment.sh
set_up --group test
: "${RESULTS:=results}" "${LAST:=last}"
mkdir -p "$RESULTS"
python -m pytest -n 2 --dist loadgroup tests/runtime/test_static_quality.py -m "not slow" --junit-xml="$RESULTS/quality.xml"
mapfile -t names < <(portable-softmax profiles | tail -n +2 | cut -d ' ' -f 1 | grep -v '^intel/') # triton-xpu is of scripts/intel.sh
portable-softmax compare "${names[@]}" --shapes 4096x781 4096x4096 4096x12672 128x151936 --dtype float32 bfloat16 \
    --save "$RESULTS/plans.json" >/dev/null
runs=("$RESULTS")
[ ! -d "$LAST" ] || runs=("$LAST" "$RESULTS")
portable-softmax report "${runs[@]}" --html "$RESULTS/page.html" | tee -a "${GITHUB_STEP_SUMMARY:-/dev/null}"
