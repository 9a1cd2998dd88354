# Sourced by demo.sh and test.sh. `set_up` makes .venv, with this package and amdgcn_cpu/ editable and what its arguments ask of pip,
# and puts it on PATH. A torch and a triton that are already there stay: vendors' containers bring builds of their own. What pip fetches
# and installs is printed on stderr: on a fresh machine it is a minute's work.
unset PYTHONDONTWRITEBYTECODE # pip compiles nothing, as most of torch is never imported; what is, is compiled once
TRITON='triton==3.8.0' # compiles for every architecture of the profiles: 3.6 lacks sm_110, 3.9 dropped gfx1030

set_up() {
    make_venv
    install --upgrade pip hatchling hatch-fancy-pypi-readme editables # that knows groups; and what builds, for both packages
    has torch || install torch numpy $(cpu_index)
    has triton || install "$TRITON" # builds of torch for GPUs bring their own
    install --no-build-isolation --editable ./amdgcn_cpu --editable '.[virtual]' "$@"
    PATH=$PWD/.venv/bin:$PATH
}

has() { .venv/bin/python -c "import importlib.util, sys; sys.exit(not importlib.util.find_spec('$1'))"; } # without importing it

cpu_index() { # the build for CPUs, where no GPU is visible and PyTorch's index is: that of the usual index is gigabytes of CUDA
    local index=https://download.pytorch.org/whl/cpu device
    for device in /dev/nvidiactl /dev/kfd /dev/dxg; do [ ! -e $device ] || return 0; done
    ! "${PYTHON:-python3}" -c "from urllib.request import urlopen; urlopen('$index/torch/', timeout=3)" 2>/dev/null || echo --extra-index-url $index
}

# Ascend's compiler, two wheels without CANN, into .ascend, behind set_up: 230 MB are downloaded, unless its releases are there.
set_up_ascend() {
    export PORTABLE_SOFTMAX_ASCEND=${PORTABLE_SOFTMAX_ASCEND:-$PWD/.ascend}
    local command fetched=.ascend.new
    command=$(python -c 'from portable_softmax.devices.backends import npu_compiler as c; print(c.INSTALL if c.missing() else "")')
    [ "$command" ] || return 0
    echo "${command/DIR/.ascend}" >&2
    rm -rf $fetched
    if ! python -m ${command/DIR/$fetched} --quiet --no-compile --disable-pip-version-check; then
        rm -rf $fetched
        unset PORTABLE_SOFTMAX_ASCEND
        echo "Ascend's compiler is not for this machine: kernels for Ascend are NOT CHECKED, their plans are estimates" >&2
        return 1
    fi
    rm -rf $fetched/ascendnpuir/bin/bishengir-opt* .ascend # of no use here, 250 MB; of other releases
    mv $fetched .ascend
    PORTABLE_SOFTMAX_ASCEND=$PWD/.ascend
}

make_venv() {
    local python=${PYTHON:-python3} others=
    [ ! -x .venv/bin/python ] || return 0
    echo "making .venv" >&2
    ! "$python" -c 'import torch, triton' 2>/dev/null || others=--system-site-packages
    "$python" -m venv $others .venv
}

install() {
    echo "pip install $*" >&2
    .venv/bin/python -m pip ${VENV:+--python "$VENV/bin/python"} install --no-compile --disable-pip-version-check --progress-bar off --constraint scripts/constraints.txt "$@" |
        sed -u -n '/^Collecting\|^Processing\|^ *Downloading\|^Installing collected/p' >&2
}
