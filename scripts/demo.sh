#!/usr/bin/env bash
# Sets up .venv, shows the device and the plan, and runs the kernel on the matrix of the tutorials; then plans long rows for
# devices of three vendors that need not be there. Arguments go to the first probe: bash scripts/demo.sh --dtype bfloat16
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/environment.sh
set_up
python scripts/probe_device.py --rows 1823 --cols 781 --verify "$@"
fleet=(--compare nvidia/h200 amd/mi300x amd/rx-7900-xtx ascend/910b3 --rows 4096 --cols 8192 --dtype bfloat16 --explain)
printf '\nThe same kernel on devices that need not be here, compiled by this Triton:\n\n$ python scripts/probe_device.py %s\n' "${fleet[*]}"
env -u TRITON_INTERPRET python scripts/probe_device.py "${fleet[@]}" ||
    echo "This Triton does not compile for all of them; README.md, Install, says which does." >&2
