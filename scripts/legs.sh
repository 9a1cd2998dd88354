#!/usr/bin/env bash
# Prints the legs of .github/matrix.json that RUNNERS (labels) can take, of BACKENDS if named, for GitHub; with --gitlab for GitLab.
set -euo pipefail
[ "${1:-}" != --help ] || { sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0"; exit; }
cd "$(dirname "$0")/.."
environment=$(mktemp -d)
trap 'rm -rf "$environment"' EXIT
"${PYTHON:-python3}" -m venv "$environment"
"$environment/bin/python" -m pip install --quiet --disable-pip-version-check --editable .
read -ra runners <<<"${RUNNERS:-}"
read -ra backends <<<"${BACKENDS:-}"
"$environment/bin/portable-softmax" matrix "$@" ${runners[0]:+--runner "${runners[@]}"} ${backends[0]:+--backend "${backends[@]}"}
