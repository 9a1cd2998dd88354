#!/usr/bin/env bash
# Four steps: sets up .venv, runs the kernel on the matrix of the tutorials and compares it with float64, plans long rows for
# absent devices of three vendors, and says what to try. Arguments go to step 2: bash scripts/demo.sh --dtype bfloat16
set -euo pipefail
[ "${1:-}" != --help ] || { sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0"; exit; }
cd "$(dirname "$0")/.."
source scripts/environment.sh
step() { printf '\n== Step %s of 4: %s\n\n' "$1" "$2"; }

step 1 "install torch and Triton into .venv (the longest step of a fresh machine: a build of torch for GPUs is gigabytes)"
set_up
set_up_ascend || true

step 2 "the local device, or Triton's interpreter: a softmax of 1823 x 781, compared with float64"
echo "\$ portable-softmax verify --shapes 1823x781${*:+ $*}"
python -m portable_probe verify --shapes 1823x781 "$@"

fleet=(plan --on nvidia/h200 amd/mi300x amd/rx-7900-xtx ascend/910b3 --shapes 4096x8192 --dtype bfloat16 --explain)
step 3 "the same kernel on absent devices, compiled by this Triton"
printf '$ portable-softmax %s\n' "${fleet[*]}"
env -u TRITON_INTERPRET python -m portable_probe "${fleet[@]}" ||
    echo "This Triton does not compile for all of them; Intel requires triton-xpu, in a separate environment." >&2

step 4 "what to try next"
cat <<'END'
source .venv/bin/activate
TRITON_INTERPRET=1 python examples/sampler.py                      softmax in your own code; examples/README.md lists more
portable-softmax profiles                                          the devices that can be planned for
portable-softmax plan --on ascend/910b3 --shapes 64x50257 --facts one of them, with the facts of its hardware
portable-softmax profiles show ascend/910b3                        each fact's source
portable-softmax kernel examples/my_kernel.py:subtract_max --on amd/mi300x nvidia/h200 --args 'x=f32[4096] y=f32[4096] n=4096 BLOCK=1024'
                                                                   your own kernel, in place of this one
portable-softmax plan --on nvidia/h200 amd/mi300x --save plans.json
                                                                   with a later file, `portable-softmax diff OLD NEW` prints what changed
END
