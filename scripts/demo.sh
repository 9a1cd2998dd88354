#!/usr/bin/env bash
# Sets up .venv, shows the device and the plan, and runs the kernel on the matrix of the tutorials; then plans long rows for
# devices of three vendors that need not be there. Arguments go to the first probe: bash scripts/demo.sh --dtype bfloat16
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/environment.sh
set_up
python scripts/probe_device.py --rows 1823 --cols 781 --verify "$@"
fleet=(compare nvidia/h200 amd/mi300x amd/rx-7900-xtx ascend/910b3 --rows 4096 --cols 8192 --dtype bfloat16 --explain)
printf '\nThe same kernel on devices that need not be here, compiled by this Triton:\n\n$ portable-softmax %s\n' "${fleet[*]}"
env -u TRITON_INTERPRET python -m portable_softmax "${fleet[@]}" ||
    echo "This Triton does not compile for all of them; README.md, Install, says which does." >&2
cat <<'END'

What to try next (source .venv/bin/activate):
  portable-softmax profiles                                          the devices that can be planned for
  portable-softmax plan ascend/910b3 --cols 50257 --facts            one of them, with the facts of its hardware
  portable-softmax profiles show ascend/910b3                        each fact's source
  portable-softmax kernel tests/support/example_kernels.py:add_kernel --on amd/mi300x nvidia/h200 \
      --args 'x_ptr=f32[4096] y_ptr=f32[4096] out_ptr=f32[4096] n_elements=4096 BLOCK_SIZE=1024'
                                                                     a kernel of yours, in place of this one
  portable-softmax compare nvidia/h200 amd/mi300x --save now.json    and later `portable-softmax diff now.json`: what changed
  README.md, Use                                                     softmax in your own code
END
