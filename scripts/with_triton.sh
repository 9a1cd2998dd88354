#!/usr/bin/env bash
# Runs Python with another Triton than .venv's; its compiler makes other code and spills elsewhere:
#   bash scripts/with_triton.sh 3.6.0 -m pytest tests/planning/test_never_refused.py -k compilers
# Triton is unpacked in .tritons and seen by this command alone.
set -euo pipefail
[ "${1:-}" != --help ] || { sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0"; exit; }
cd "$(dirname "$0")/.."
version=${1:?is a release of Triton, such as 3.6.0}
shift
if [ ! -d ".tritons/$version" ]; then
    fetched=$(mktemp -d)
    trap 'rm -rf "$fetched"' EXIT
    .venv/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --no-compile --target "$fetched" "triton==$version"
    mkdir -p .tritons
    mv "$fetched" ".tritons/$version"
    trap - EXIT
fi
PYTHONPATH=$PWD/.tritons/$version exec .venv/bin/python "$@"
