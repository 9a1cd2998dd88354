#!/usr/bin/env bash
# The tests of the Intel path (tests/intel): plans by Intel's compilers, and the SPIR-V executed by Intel's OpenCL runtime on a
# CPU. In a virtual environment of their own, .venv-intel: triton-xpu is another package `triton`. Plans of your own:
#   PATH=$PWD/.venv-intel/bin:$PATH portable-softmax plan intel/max-1550 --cols 8192 --explain
# Where this cannot be set up, it says so and succeeds; with --required it fails. Other arguments go to pytest.
set -euo pipefail
[ "${1:-}" != --help ] || { sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0"; exit; }
cd "$(dirname "$0")/.."
environment=$PWD/.venv-intel
ocloc_packages=(intel-ocloc libigc2) # what they need comes with them
ocloc_suite=forky # Debian's first with an ocloc that knows Xe2 and Xe3
required=
[ "${1:-}" != --required ] || { required=1; shift; }

not_run() {
    echo "Intel: NOT RUN, so nothing of tests/intel was checked: $1" >&2
    exit "${required:-0}"
}

find_python() { # the versions that both triton-xpu 3.3.0b1 and this package run on
    for python in ${PYTHON:-} python3.11 python3.12 python3.10 python3; do
        if "$python" -c 'import sys; sys.exit(not (3, 10) <= sys.version_info[:2] <= (3, 12))' 2>/dev/null; then
            echo "$python"
            return
        fi
    done
    return 1
}

install_packages() {
    local pip=("$environment/bin/python" -m pip install --quiet --disable-pip-version-check)
    "${pip[@]}" torch==2.13.0 && # by itself and exactly: another one may bring gigabytes for GPUs
        "${pip[@]}" --no-deps triton-xpu==3.3.0b1 &&
        "${pip[@]}" intel-opencl-rt==2026.2.0 intel-cmplr-lib-rt==2026.2.0 pyopencl==2026.1.4 &&
        "${pip[@]}" 'numpy<2.4' 'pytest>=8.3' 'msgspec>=0.19' 'PyYAML>=6' 'tabulate>=0.9' &&
        "${pip[@]}" --no-deps --editable . &&
        mkdir -p "$environment/opencl" &&
        echo "$environment/lib/libintelocl.so" >"$environment/opencl/intel.icd" # the wheel's own names another folder
}

# Debian's packages, unpacked only, with the C library that they need; from the mirror that this machine's apt uses.
unpack_ocloc() {
    local folder=$environment/ocloc lists mirror keys=/usr/share/keyrings/debian-archive-keyring.gpg
    mirror=$(apt-get indextargets --no-release-info --format '$(REPO_URI)') || return 1
    mirror=$(grep -m1 '/debian/*$' <<<"$mirror") || return 1
    lists=$(mktemp -d)
    mkdir -p "$lists/lists/partial" "$lists/cache/archives/partial"
    : >"$lists/status"
    echo "deb [signed-by=$keys] $mirror $ocloc_suite main" >"$lists/sources.list"
    local apt=(apt-get -qq -o "Dir::Etc::SourceList=$lists/sources.list" -o Dir::Etc::SourceParts=/dev/null
        -o "Dir::State::Lists=$lists/lists" -o "Dir::State::Status=$lists/status" -o "Dir::Cache=$lists/cache"
        -o APT::Sandbox::User= -o Debug::NoLocking=1)
    "${apt[@]}" update &&
        "${apt[@]}" --yes --no-install-recommends --download-only install "${ocloc_packages[@]}" &&
        for package in "$lists"/cache/archives/*.deb; do dpkg -x "$package" "$folder" || return 1; done
    local outcome=$?
    rm -rf "$lists"
    [ "$outcome" = 0 ] || return "$outcome"
    local libraries=$folder/usr/lib/x86_64-linux-gnu
    printf '#!/bin/sh\nexec %q --library-path %q %q "$@"\n' "$libraries/ld-linux-x86-64.so.2" "$libraries" \
        "$(echo "$folder"/usr/bin/ocloc-*)" >"$environment/bin/ocloc"
    chmod +x "$environment/bin/ocloc"
    "$environment/bin/ocloc" ids pvc >/dev/null
}

state() { # what an environment that is ready was made from
    cat "$0" pyproject.toml | sha256sum
}

[ "$(uname -sm)" = "Linux x86_64" ] || not_run "triton-xpu and Intel's OpenCL runtime are for x86-64 and Linux; this is $(uname -sm)"
python=$(find_python) || not_run "triton-xpu 3.3.0b1 needs Python 3.10 to 3.12; none is on PATH (PYTHON=... names one)"

stamp=$environment/ready
if [ "$(cat "$stamp" 2>/dev/null)" != "$(state)" ]; then
    [ -x "$environment/bin/python" ] || "$python" -m venv "$environment" || not_run "$python cannot make a virtual environment"
    echo '*' >"$environment/.gitignore"
    echo "Intel: installing torch 2.13.0, triton-xpu 3.3.0b1, an OpenCL runtime and ocloc into $environment" >&2
    install_packages || not_run "pip cannot install torch 2.13.0, triton-xpu 3.3.0b1 and intel-opencl-rt"
    if ! [ -x "$environment/bin/ocloc" ] && ! unpack_ocloc; then
        rm -f "$environment/bin/ocloc"
        [ -z "$required" ] || not_run "apt-get cannot download ${ocloc_packages[*]} of Debian's $ocloc_suite"
        echo "Intel: no ocloc, as there is no apt-get of Debian's: registers are estimated, and what needs them is skipped" >&2
    fi
    state >"$stamp"
fi
exec "$environment/bin/python" -m pytest tests/intel -m "not slow" "$@"
