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
cat <<'END'

What to try next (source .venv/bin/activate):
  portable-softmax --list                                            the devices that can be planned for
  portable-softmax --profile ascend/910b3 --cols 50257 --explain     one of them, with every fact and its source
  portable-softmax --profile amd/mi300x --explain --textbook --kernel tests/support/example_kernels.py:add_kernel \
      --signature x_ptr=*fp32:16 y_ptr=*fp32:16 out_ptr=*fp32:16 n_elements=i32:16 --constexpr BLOCK_SIZE=1024
                                                                     a kernel of yours, in place of this one
  portable-softmax --compare nvidia/h200 amd/mi300x --save now.json  and later --baseline now.json: what changed
  README.md, Use                                                     softmax in your own code
END
