#!/usr/bin/env bash
# Builds wheel and source distribution of both packages into dist/, and checks them as an index and a user get them:
#   bash scripts/wheels.sh 3.10 3.13
# With each Python that is named (by default, that of PATH), the wheels are installed outside of this clone: alone, where errors
# name what to install; with Triton, for plans and `kernel`; and, but for WITHOUT_TORCH=1, with a torch for CPUs, for README's
# example, the emulator and the plugin of pytest.
set -euo pipefail
[ "${1:-}" != --help ] || { sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0"; exit; }
cd "$(dirname "$0")/.."
source scripts/environment.sh
root=$PWD work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
step() { echo "== $SECONDS s: $*" >&2; }

step build
rm -rf dist
python3 -m venv "$work/build"
"$work/build/bin/pip" --quiet install build twine
for source in . amdgcn_cpu; do "$work/build/bin/python" -m build --outdir dist $source; done
"$work/build/bin/twine" check --strict dist/*
"$work/build/bin/python" - dist/portable_softmax-*.whl <<'END'
import re, sys, zipfile
wheel = zipfile.ZipFile(sys.argv[1])
page = wheel.read(next(name for name in wheel.namelist() if name.endswith("METADATA"))).decode()
assert not (links := re.findall(r"\]\((?!https://|#)[^)]*\)", page)), f"links that an index cannot follow: {links}"
END
cp examples/my_kernel.py examples/test_my_kernel.py "$work"
"$work/build/bin/python" - README.md "$work" <<'END'
import pathlib, re, sys
code, printed = re.search(r"```python\n(.*?)```\n\n```\n(.*?)```", pathlib.Path(sys.argv[1]).read_text(), re.DOTALL).groups()
pathlib.Path(sys.argv[2], "readme.py").write_text(code)
pathlib.Path(sys.argv[2], "readme.txt").write_text(printed)
END

for version in "${@:-}"; do
    cd "$root"
    python=$(command -v "$HOME/.pyenv/versions/$version".*/bin/python || command -v "python${version:-3}") # pyenv's may not be on PATH
    step "$("$python" --version), alone"
    rm -rf "$work/venv"
    "$python" -m venv "$work/venv"
    pip=("$work/venv/bin/pip" --quiet --disable-pip-version-check install)
    "${pip[@]}" dist/portable_softmax-*.whl dist/amdgcn_cpu-*.whl
    cd "$work"
    PATH=$work/venv/bin:$PATH
    portable-softmax profiles | grep -q ^nvidia/h200
    portable-softmax profiles show amd/mi300x >/dev/null
    for name in softmax persistent explain; do
        said=$(python -I -c "import portable_softmax; portable_softmax.$name" 2>&1) && exit 1
        grep -q "pip install torch triton" <<<"$said"
    done
    step "with Triton"
    "${pip[@]}" "$TRITON"
    portable-softmax plan --on nvidia/h200 amd/mi300x --shapes 1823x781
    portable-softmax kernel my_kernel.py:subtract_max --on nvidia/h200 amd/mi300x --args x='*fp32:16' y='*fp32:16' n=i32:16 BLOCK=1024
    step "the source distributions"
    for source in "$root"/dist/*.tar.gz; do "${pip[@]}" --force-reinstall --no-deps "$source"; done
    portable-softmax profiles | grep -q ^nvidia/h200
    [ -z "${WITHOUT_TORCH:-}" ] || continue
    step "with torch"
    "${pip[@]}" --constraint "$root/scripts/constraints.txt" torch numpy pytest $(cpu_index)
    python readme.py | diff - readme.txt
    TRITON_INTERPRET=1 python -W ignore readme.py >/dev/null
    portable-softmax verify --on amd/mi300x --shapes 8x65
    python -m pytest -q -p no:cacheprovider test_my_kernel.py --on nvidia/h200,amd/mi300x -k fits --fail-on-skip
    python -m pytest -q -p no:cacheprovider test_my_kernel.py --on interpreter -k right --fail-on-skip
done
step done
