#!/usr/bin/env bash
# Plans, and runs kernels in the interpreter, with another torch and Triton, in an environment of its own, .versions:
#   PYTHON=python3.10 bash scripts/versions.sh 2.6.0 3.2.0
# Not all tests: many compile for devices that an old Triton does not know.
set -euo pipefail
[ "${1:-}" != --help ] || { sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0"; exit; }
cd "$(dirname "$0")/.."
source scripts/environment.sh
rm -rf .versions
"${PYTHON:-python3}" -m venv .versions
PATH=$PWD/.versions/bin:$PATH
pip install --upgrade pip
pip install "torch==${1:?is a release of torch}" $(cpu_index)
pip install "triton==${2:?is a release of Triton}" setuptools # Triton 3.2 needs it and does not say so
pip install --group test --editable .
portable-softmax plan --on nvidia/h100-sxm --shapes 4096x781 128x151936 --markdown
python -m pytest -q tests/planning/test_planner.py tests/devices/test_occupancy.py
python -m pytest -q tests/planning/test_never_refused.py -k "compilers and h200"
python -m pytest -q tests/kernels/test_numbers.py tests/operators/test_modes.py -m "kernel and not slow" --device interpreter
