#!/usr/bin/env bash
# Builds the wheel, and uses it in an environment that has nothing else.
set -euo pipefail
[ "${1:-}" != --help ] || { sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0"; exit; }
cd "$(dirname "$0")/.."
: "${RESULTS:=results}"
environment=$(mktemp -d)
trap 'rm -rf "$environment"' EXIT
"${PYTHON:-python3}" -m venv "$environment"
"$environment/bin/python" -m pip install --quiet --disable-pip-version-check build
"$environment/bin/python" -m build --wheel --outdir "$RESULTS"
"$environment/bin/python" -m pip install --quiet --disable-pip-version-check "$RESULTS"/portable_softmax-*.whl
cd "$environment"
bin/portable-softmax profiles | head -3
bin/portable-softmax matrix --offline
bin/portable-softmax report --help | head -1
