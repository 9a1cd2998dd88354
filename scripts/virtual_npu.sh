#!/usr/bin/env bash
# Runs tests/virtual, the Ascend path on a virtual NPU, in an environment of its own, .virtual_npu; other arguments go to pytest:
#   bash scripts/virtual_npu.sh -k right
#   --required   fails where it cannot be set up; without it, that is only said
#   --install    sets it up, and runs nothing
set -euo pipefail
[ "${1:-}" != --help ] || { sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0"; exit; }
cd "$(dirname "$0")/.."
source scripts/environment.sh
required= install_only=
[ "${1:-}" != --required ] || { required=1; shift; }
[ "${1:-}" != --install ] || { install_only=1; shift; }
VENV=.virtual_npu
state=$(sha256sum scripts/virtual_npu.sh) # what an environment that is ready was made from

set_up_npu() { # prints what is missing
    local python tool
    [ "$(uname -sm)" = "Linux x86_64" ] || { echo "it needs Linux on x86-64"; return 1; }
    grep -q 'avx2.*f16c\|f16c.*avx2' /proc/cpuinfo || { echo "it needs a processor with AVX2 and F16C"; return 1; }
    python=$(.venv/bin/python -c 'import sys; assert sys.version_info[:2] in ((3, 10), (3, 11)); print(sys.executable)' 2>/dev/null ||
        command -v python3.11 || command -v python3.10) || { echo "it needs Python 3.10 or 3.11, as triton-ascend"; return 1; }
    for tool in gcc apt-get dpkg; do command -v $tool >/dev/null || { echo "it needs $tool"; return 1; }; done
    rm -rf $VENV
    {
        "$python" -m venv --without-pip $VENV && link_packages &&
            install torch==2.13.0 pybind11 'numpy<2.3' 'pytest>=8.3,<9.2' 'pytest-xdist>=3.6' hypothesis msgspec packaging PyYAML tabulate &&
            install --no-deps triton-ascend==3.2.0 # torch_npu needs CANN
    } >&2 || { echo "its packages cannot be installed"; return 1; }
    unpack mlir-19-tools libmlir-19 libllvm19 llvm-19 >&2 || { echo "packages of Debian or Ubuntu cannot be downloaded"; return 1; }
    echo "$state" >$VENV/ready
}

link_packages() { # those of .venv, if it has the same Python: another torch takes seconds to unpack
    local folder package
    folder=$(.venv/bin/python -c 'import importlib.util as u, pathlib; print(pathlib.Path(u.find_spec("torch").origin).parents[1])' 2>/dev/null) || return 0
    [ "$($VENV/bin/python -V)" = "$(.venv/bin/python -V)" ] || return 0
    for package in "$folder"/*; do
        case ${package##*/} in
            triton* | numpy* | pip* | portable_* | amdgcn_* | *.pth) ;;
            *) ln -s "$package" $VENV/lib/python3.*/site-packages/ 2>/dev/null || true ;;
        esac
    done
}

unpack() { # packages of Debian, with lists of their own, so that no root is needed
    local lists=$VENV/lists own package
    mkdir -p $lists/lists/partial $lists/cache/archives/partial
    own=(-qq -o "Dir::State::Lists=$PWD/$lists/lists" -o "Dir::Cache=$PWD/$lists/cache" -o APT::Sandbox::User=)
    apt-get "${own[@]}" update && (cd $lists/cache/archives && apt-get "${own[@]}" download "$@") || return 1
    for package in $lists/cache/archives/*.deb; do dpkg -x "$package" $VENV/mlir || return 1; done
    rm -rf $lists
}

not_run() {
    echo "tests/virtual: NOT RUN, so nothing of these tests was checked: $1" >&2
    [ -z "$required" ]
    exit
}

[ "$(cat $VENV/ready 2>/dev/null)" = "$state" ] || why=$(set_up_npu) || not_run "$why"
export PYTHONPATH=$PWD PATH=$PWD/$VENV/bin:$PATH
set_up_ascend || not_run "Ascend's compiler cannot be installed"
[ "$install_only" ] || python -m pytest tests/virtual "$@"
