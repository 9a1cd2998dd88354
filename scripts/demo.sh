#!/usr/bin/env bash
# Sets up .venv, shows the device and the plan, and runs the kernel on the matrix of the tutorials.
# Arguments go to the probe: bash scripts/demo.sh --dtype bfloat16
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/environment.sh
set_up
python scripts/probe_device.py --rows 1823 --cols 781 --verify "$@"
