"""Options of the command line, and the cases that they mean."""

import argparse
import re
from itertools import product
from pathlib import Path
from typing import Any

from portable_probe.report import Case, KernelCall, SoftmaxProblem
from portable_softmax.devices.backends import BACKENDS
from portable_softmax.devices.backends.base import DTYPE_BYTES

EXIT_CODES = """exit codes:
  0  answered, and all checks passed
  1  a check failed: a kernel does not compile, fit or compute the right result, or misses --at-least or --no-spills
  2  usage: unknown options or names, or a file that is missing or holds something else
  3  worse than the saved reports (diff)
  4  not checked: no such local device, or Triton does not compile for it"""
SHORT = {"fp16": "float16", "f16": "float16", "half": "float16", "bf16": "bfloat16", "fp32": "float32", "f32": "float32"}
ROLES = {"rows", "cols", "block"}


def _wrong(text: str, words: str) -> argparse.ArgumentTypeError:
    return argparse.ArgumentTypeError(f"{text!r} is not {words}")


def _kernel_name(text: str) -> str:
    if ":" not in text:
        raise _wrong(text, "FILE:NAME")
    return text


def _dtype(text: str) -> str:
    name = SHORT.get(text.lower(), text.lower())
    if name not in DTYPE_BYTES:
        raise _wrong(text, f"one of {', '.join(DTYPE_BYTES)}")
    return name


def _number(text: str, least: int = 1) -> int:
    if not text.isdecimal() or int(text) < least:
        raise _wrong(text, f"a number from {least} on")
    return int(text)


def _config(text: str) -> int | str:
    return text if text == "all" else _number(text, 0)


def _bound(text: str) -> tuple[str, int]:
    """Parses "8" or "cuda=8"."""
    backend, _, number = text.rpartition("=")
    if backend and backend not in BACKENDS:
        raise _wrong(backend, f"one of {', '.join(BACKENDS)}")
    return backend, _number(number)


def _shape(text: str) -> tuple[int, int]:
    rows, _, cols = text.partition("x")
    return _number(rows), _number(cols)


def _pair(text: str) -> tuple[str, str]:
    """Parses NAME=VALUE."""
    name, equals, value = text.partition("=")
    if not (name and equals and value):
        raise _wrong(text, "NAME=VALUE")
    return name, value


_ON = "devices that need not be here (default: the one that is): amd/mi300x, h200, 'NVIDIA H100 80GB HBM3', gfx942, sm_90, "
_ON += (
    f"'amd/*' (one of each architecture); several with spaces or commas; {', '.join(BACKENDS)}: the local one, of this backend"
)
_SUGGEST = "all warps and stages, sorted by spills and occupancy; of a kernel that works on rows the launch with the least "
_SUGGEST += "expected time: rows=N cols=M block=BLOCK name its parameters"
_ARGS = "arguments, constexprs and Triton's options: 'x=f16[4096,4096] n=4096 BLOCK=64 num_warps=8 maxnreg=64'"
_SEVERAL: dict[str, Any] = {"nargs": "+", "action": "extend", "default": []}
_FLAG: dict[str, Any] = {"action": "store_true"}
_KERNEL: dict[str, Any] = {"type": _kernel_name, "metavar": "FILE:NAME"}
OPTIONS: dict[str, dict[str, Any]] = {
    "kernel": {**_KERNEL, "help": "a @triton.jit function, as decorated"},
    "file": {"type": Path, "metavar": "FILE", "help": "what --save wrote; its cases are answered again"},
    "action": {"nargs": "?", "choices": ("list", "show", "new"), "default": "list", "help": "list: the products (default); "
               "show NAME: facts with their sources, of the local device by default; new DIR: write its profile"},
    "what": {"nargs": "?", "metavar": "NAME or DIR", "help": "of the profile, or where to write"},
    "--kernel": {**_KERNEL, "help": "the user kernel: verify requires --case too; diff runs its file only if it is named"},
    "--on": {**_SEVERAL, "metavar": "NAME", "help": _ON},
    "--shapes": {"type": _shape, "nargs": "+", "metavar": "ROWSxCOLS", "default": [(4096, 4096)], "help": "4096x4096"},
    "--dtype": {"type": _dtype, "nargs": "+", "metavar": "TYPE", "default": ["float32"], "help": ", ".join(DTYPE_BYTES)},
    "--backward": {**_FLAG, "help": "the gradient instead"},
    "--args": {**_SEVERAL, "metavar": "NAME=VALUE", "help": _ARGS},
    "--case": {"metavar": "NAME", "help": "a function in the kernel's file that returns (grid, arguments, expected)"},
    "--config": {"type": _config, "metavar": "N", "help": "a configuration of @triton.autotune, from 0; all for each"},
    "--suggest": {"type": _pair, "nargs": "*", "metavar": "ROLE=PARAMETER", "help": _SUGGEST},
    "--at-least": {"type": _bound, "nargs": "+", "default": [], "metavar": "N",
                   "help": "check the programs per multiprocessor, of all devices or by backend: 8, or cuda=8 npu=1"},
    "--no-spills": {**_FLAG, "help": "fail if registers are spilled"},
    "--explain": {**_FLAG, "help": "also the reasons, and the count of each limit"},
    "--facts": {**_FLAG, "help": "also the hardware's facts, with their origins"},
    "--json": {**_FLAG, "help": "as JSON: portable_probe/report.py"},
    "--markdown": {**_FLAG, "help": "as a table in Markdown"},
    "--save": {"type": Path, "metavar": "FILE", "help": "also write the reports, for diff"},
}  # fmt: skip


def softmaxes(options: argparse.Namespace) -> list[Case]:
    """Returns the softmaxes that the options mean."""
    return [
        SoftmaxProblem(n_rows=n_rows, n_cols=n_cols, dtype=dtype, backward=options.backward)
        for (n_rows, n_cols), dtype in product(options.shapes, options.dtype)
    ]


def kernel_call(options: argparse.Namespace) -> KernelCall:
    """Returns the user kernel that the options mean."""
    if options.suggest and not {"cols", "block"} <= dict(options.suggest).keys() <= ROLES:
        options.error("--suggest takes rows=PARAMETER cols=PARAMETER block=PARAMETER, or nothing")
    words = re.sub(r",\s+", ",", " ".join(options.args)).split()
    config = None if options.config == "all" else options.config
    return KernelCall(name=options.kernel, arguments=dict(map(_pair, words)), config=config, case=options.case)
