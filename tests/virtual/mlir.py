"""Linalg, as `triton-adapter-opt` writes it, to a shared object for the host: stock MLIR 19 and LLVM 19, then gcc."""

import hashlib
import math
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(sys.prefix, "mlir", "usr", "lib")  # Debian's packages, unpacked by scripts/virtual_npu.sh
CACHE = Path(sys.prefix, "cache")
SHIM = Path(__file__).with_name("shim.c")

# The attributes hivm.* are unregistered; arith and math are on tensors; else every tile of a loop would stay allocated;
# bf16 to and from fp32; affine and arith twice, as lowering memrefs makes more of both.
TO_LLVM = (
    "--allow-unregistered-dialect --convert-elementwise-to-linalg --canonicalize --cse --eliminate-empty-tensors "
    "--empty-tensor-to-alloc-tensor --one-shot-bufferize=allow-return-allocs-from-loops=true --buffer-deallocation-pipeline "
    "--convert-bufferization-to-memref --convert-linalg-to-loops --expand-strided-metadata --lower-affine --convert-scf-to-cf "
    "--arith-expand --convert-math-to-llvm --convert-math-to-libm --convert-index-to-llvm --convert-arith-to-llvm "
    "--finalize-memref-to-llvm --convert-func-to-llvm --convert-cf-to-llvm --lower-affine --convert-arith-to-llvm "
    "--reconcile-unrealized-casts"
)
# A fixed processor: results do not depend on the machine, and AVX-512's bf16 instructions would flush denormals.
HOST = ("-O2", "-mtriple=x86_64-linux-gnu", "-mcpu=x86-64-v3")
TO_OBJECT = ("-relocation-model=pic", "-filetype=obj")
# A vector unit adds up a row in lanes, not one element after the other; LLVM may do so too where flags permit it.
SUM = "arith.addf %in, %init :"
SUM_IN_LANES = "arith.addf %in, %init fastmath<reassoc> :"
# What Ascend's compiler makes of two operations: seen in its IR behind hivm-plan-memory.
FMA = re.compile(r"%(\w+) = math\.fma (%\w+), (%\w+), (%\w+)( fastmath<\w+>)? : (.+)")
TWO_ROUNDINGS = r"%product_\1 = arith.mulf \2, \3 : \6\n%\1 = arith.addf %product_\1, \4 : \6"
EXP2 = re.compile(r"%(\w+) = math\.exp2 (%\w+)( fastmath<\w+>)? : (.+)")


def shared_object(linalg: str) -> bytes:
    """The compiled kernel; its function is `_mlir_ciface_<kernel>`. Kept, by the content of all that goes into it."""
    source = _prepared(linalg)
    content = "\n".join([source, SHIM.read_text(), TO_LLVM, *HOST, *TO_OBJECT])
    kept = CACHE / f"{hashlib.sha256(content.encode()).hexdigest()}.so"
    if not kept.exists():
        CACHE.mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory(dir=CACHE) as folder:
            built = _build(source, Path(folder))
            built.replace(kept)  # at once, so that no process loads half of it
    return kept.read_bytes()


def _prepared(linalg: str) -> str:
    """With a C interface, which takes pointers to the descriptors of memrefs, sums in lanes, and Ascend's fma and exp2."""
    linalg = FMA.sub(TWO_ROUNDINGS, EXP2.sub(_exp_of_product, linalg))
    return linalg.replace(" attributes {", " attributes {llvm.emit_c_interface, ", 1).replace(SUM, SUM_IN_LANES)


def _exp_of_product(exp2: "re.Match[str]") -> str:
    result, x, _, kind = exp2.groups()
    ln2 = f"dense<{math.log(2)!r}>" if kind.startswith("tensor") else repr(math.log(2))
    product = f"%product_{result} = arith.mulf {x}, %ln2_{result} : {kind}"
    return f"%ln2_{result} = arith.constant {ln2} : {kind}\n{product}\n%{result} = math.exp %product_{result} : {kind}"


def _build(text: str, folder: Path) -> Path:
    suffixes = "mlir", "llvm.mlir", "ll", "bc", "o", "so"
    source, module, ir, optimized, code, library = (folder / f"kernel.{suffix}" for suffix in suffixes)
    source.write_text(text)
    _run("mlir-opt", source, *TO_LLVM.split(), "-o", module)
    _run("mlir-translate", "--mlir-to-llvmir", module, "-o", ir)
    _run("opt", *HOST, ir, "-o", optimized)
    _run("llc", *HOST, *TO_OBJECT, optimized, "-o", code)
    _run("gcc", "-O2", "-fPIC", "-shared", "-o", library, code, SHIM, "-lm")
    return library


def _run(tool: str, *arguments: "str | Path") -> None:
    """A tool of the unpacked packages, or of the system."""
    own = ROOT / "llvm-19" / "bin" / tool
    path = f"{ROOT / 'x86_64-linux-gnu'}:{ROOT / 'llvm-19' / 'lib'}"
    environment = os.environ | {"LD_LIBRARY_PATH": path} if own.exists() else os.environ
    command = [str(own) if own.exists() else tool, *map(str, arguments)]
    outcome = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if outcome.returncode:
        raise RuntimeError(f"{' '.join(command)}\n{outcome.stderr}")
