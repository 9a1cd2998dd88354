#!/usr/bin/env bash
# The tests of the Ascend path on a virtual NPU (tests/virtual), in a virtual environment of their own: triton-ascend is
# another package `triton`, and torch_npu must stay away, because importing torch then fails without CANN.
# Where this cannot be set up, it says so and succeeds; with --required it fails. Other arguments go to pytest.
set -euo pipefail
[ "${1:-}" != --help ] || { sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0"; exit; }
cd "$(dirname "$0")/.."
environment=.venv-npu
mlir_packages=(mlir-19-tools libmlir-19 libllvm19 llvm-19)
required=
[ "${1:-}" != --required ] || { required=1; shift; }

not_run() {
    echo "virtual NPU: NOT RUN, so nothing of tests/virtual was checked: $1" >&2
    exit "${required:-0}"
}

find_python() { # the versions that both triton-ascend 3.2.0 and this package run on
    for python in ${PYTHON:-} python3.11 python3.10 python3; do
        if "$python" -c 'import sys; sys.exit(sys.version_info[:2] not in {(3, 10), (3, 11)})' 2>/dev/null; then
            echo "$python"
            return
        fi
    done
    return 1
}

install_packages() {
    local pip=("$environment/bin/python" -m pip install --quiet --disable-pip-version-check)
    "${pip[@]}" torch==2.13.0 && # by itself and exactly: another one may bring gigabytes for GPUs
        "${pip[@]}" --no-deps triton-ascend==3.2.0 &&
        "${pip[@]}" pybind11 'numpy<2.3' 'pytest>=8.3' 'msgspec>=0.19' 'PyYAML>=6' 'tabulate>=0.9' &&
        "${pip[@]}" --no-deps --editable .
}

# Debian's packages, unpacked only. Package lists of our own, so that neither root nor fresh lists are needed.
unpack_mlir() {
    local folder=$PWD/$environment/mlir lists
    lists=$(mktemp -d)
    mkdir -p "$lists/lists/partial" "$lists/cache/archives/partial" "$lists/packages"
    local apt=(apt-get -qq -o "Dir::State::Lists=$lists/lists" -o "Dir::Cache=$lists/cache" -o APT::Sandbox::User=)
    "${apt[@]}" update &&
        (cd "$lists/packages" && "${apt[@]}" download "${mlir_packages[@]}") &&
        for package in "$lists"/packages/*.deb; do dpkg -x "$package" "$folder" || return 1; done
    local outcome=$?
    rm -rf "$lists"
    return "$outcome"
}

state() { # what an environment that is ready was made from
    cat "$0" pyproject.toml | sha256sum
}

[ "$(uname -sm)" = "Linux x86_64" ] || not_run "it executes x86-64 code on Linux; this is $(uname -sm)"
grep -q -m1 '\bavx2\b.*\bf16c\b\|\bf16c\b.*\bavx2\b' /proc/cpuinfo || not_run "this processor has no AVX2 and F16C"
command -v gcc >/dev/null || not_run "gcc, which links the kernels, is missing"
command -v apt-get >/dev/null && command -v dpkg >/dev/null || not_run "MLIR 19 comes from Debian's or Ubuntu's packages; there is no apt-get"
python=$(find_python) || not_run "triton-ascend 3.2.0 needs Python 3.10 or 3.11; neither is on PATH (PYTHON=... names one)"

stamp=$environment/ready
if [ "$(cat "$stamp" 2>/dev/null)" != "$(state)" ]; then
    [ -x "$environment/bin/python" ] || "$python" -m venv "$environment" || not_run "$python cannot make a virtual environment"
    echo '*' >"$environment/.gitignore"
    echo "virtual NPU: installing torch 2.13.0, triton-ascend 3.2.0 and MLIR 19 into $environment" >&2
    install_packages || not_run "pip cannot install torch 2.13.0 and triton-ascend 3.2.0"
    [ -x "$environment/mlir/usr/lib/llvm-19/bin/mlir-opt" ] || unpack_mlir || not_run "apt-get cannot download ${mlir_packages[*]}"
    state >"$stamp"
fi
exec "$environment/bin/python" -m pytest tests/virtual "$@"
