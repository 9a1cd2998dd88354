#!/usr/bin/env bash
# The package with other versions of Python, torch and Triton than it is developed with, in an environment of its own:
#   PYTHON=python3.10 TORCH=2.6.0 TRITON=3.2.0 bash scripts/versions.sh
# torch is the CPU's build, from PyTorch's own index; TORCH_INDEX names another one. Empty versions are the newest.
set -euo pipefail
[ "${1:-}" != --help ] || { sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0"; exit; }
cd "$(dirname "$0")/.."
: "${PYTHON:=python3}" "${TORCH:=}" "${TRITON:=}" "${TORCH_INDEX=https://download.pytorch.org/whl/cpu}"
environment=$(mktemp -d)
trap 'rm -rf "$environment"' EXIT
"$PYTHON" -m venv "$environment"
pip() { "$environment/bin/python" -m pip install --quiet --disable-pip-version-check "$@"; }
pip 'pip>=25.1'
pip "torch${TORCH:+==$TORCH}" ${TORCH_INDEX:+--index-url "$TORCH_INDEX"}
pip "triton${TRITON:+==$TRITON}" setuptools # Triton 3.2 needs setuptools and does not say so
pip --group test --editable .
"$environment/bin/python" -c 'import sys, torch, triton; print("Python", *sys.version_info[:3], "torch", torch.__version__, "Triton", triton.__version__)'
export PATH=$environment/bin:$PATH
portable-softmax plan nvidia/h100-sxm --shapes 4096x781 128x151936 --markdown
# Not all tests: many compile for devices that an old Triton does not know.
python -m pytest -q tests/planning/test_numbers_of_profiles.py tests/devices/test_occupancy.py
python scripts/random_plans.py --problems 20
python -m pytest -q tests/kernels/test_accuracy.py tests/api/test_torch_semantics.py tests/operators/test_gradients.py \
    -m "kernel and not slow" --device interpreter
