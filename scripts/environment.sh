# Sourced by demo.sh and test.sh: makes .venv, with this package editable, and puts it on PATH.
# A torch and a triton that are already there stay: vendors' containers bring builds of their own.
python=${PYTHON:-python3}
if [ ! -x .venv/bin/python ]; then
    if "$python" -c 'import torch, triton' 2>/dev/null; then
        "$python" -m venv --system-site-packages .venv
    else
        "$python" -m venv .venv
    fi
fi
.venv/bin/python -m pip install --quiet --disable-pip-version-check --upgrade 'pip>=25.1' # the first with --group
if ! .venv/bin/python -c 'import torch, triton' 2>/dev/null; then
    # torch alone first: the package index's torch for GPUs would bring gigabytes that a CPU cannot use.
    .venv/bin/python -m pip install --quiet --disable-pip-version-check --constraint scripts/constraints.txt torch
    .venv/bin/python -m pip install --quiet --disable-pip-version-check --constraint scripts/constraints.txt triton numpy
fi
.venv/bin/python -m pip install --quiet --disable-pip-version-check --editable . "$@"
PATH=$PWD/.venv/bin:$PATH
