"""Options of the command line that subcommands share, and the cases that they mean."""

import argparse
import re
from itertools import product
from pathlib import Path
from typing import Any, NoReturn

from portable_probe.report import Case, KernelCall, SoftmaxProblem
from portable_softmax.devices.backends import BACKENDS
from portable_softmax.devices.backends.base import DTYPE_BYTES
from portable_softmax.planning.problem import Scores
from portable_softmax.row_kernels.arguments import value_of

EXIT_CODES = """exit codes:
  0  answered, and all checks passed
  1  a check failed: a kernel does not compile, fit or compute the right result, or misses --at-least, --no-spills, --require
  2  usage: unknown options or names, or a file that is missing or holds something else
  3  worse than the saved reports (diff)
  4  not checked: no local device, or Triton does not compile for it"""
SHORT = {"fp16": "float16", "f16": "float16", "half": "float16", "bf16": "bfloat16", "fp32": "float32", "f32": "float32"}
MASKS = ("boolean", "added", "causal", "lower_right")


class Parser(argparse.ArgumentParser):
    """A parser whose errors are one line."""

    def error(self, message: str) -> NoReturn:
        """Prints the error and ends the process with code 2."""
        self.exit(2, f"{self.prog}: {message}; see {self.prog} --help\n")


def device(command: Parser) -> None:
    """Adds the options that name devices."""
    words = (
        "devices that need not be here (default: the one that is): amd/mi300x, h200, 'NVIDIA H100 80GB HBM3', gfx942, sm_90,"
    )
    words += " 'amd/*' (one of each architecture); several with spaces or commas"
    command.add_argument("--on", nargs="+", action="extend", metavar="NAME", help=words)
    require(command)


def require(command: Parser) -> None:
    """Adds --require."""
    command.add_argument("--require", choices=tuple(BACKENDS), help="fail unless the device is of this backend")


def softmax(command: Parser) -> None:
    """Adds the options of a softmax."""
    add = command.add_argument_group("softmax").add_argument
    add("--rows", type=_positive, metavar="N", help="rows (4096)")
    add("--cols", type=_positive, metavar="N", help="columns (4096)")
    add("--shapes", type=_shape, nargs="+", metavar="ROWSxCOLS", help="several, instead of --rows and --cols")
    add("--dtype", nargs="+", type=_dtype, metavar="TYPE", default=["float32"], help="float16, bfloat16, float32 (default)")
    add("--backward", action="store_true", help="the gradient instead")
    add("--mask", nargs="+", choices=MASKS, default=[], metavar="KIND", help="boolean or added; causal or lower_right (causal)")
    factor: dict[str, Any] = {"nargs": "?", "const": "number", "choices": ("number", "rows")}
    add("--scale", **factor, help="x times a number, or times one for each row")
    add("--temperature", **factor, help="x divided by a number, or by one for each row")
    add("--softcap", type=_cap, metavar="CAP", help="CAP * tanh(x / CAP)")
    add("--sink", action="store_true", help="one more logit for each row, in the denominator alone")


def call(command: Parser) -> None:
    """Adds the options of a kernel's launch."""
    add = command.add_argument_group("kernel").add_argument
    words = "'x=f16[4096,4096] n=4096 BLOCK=64'"
    add("--args", nargs="+", action="extend", default=[], metavar="NAME=VALUE", help=words)
    add("--case", metavar="NAME", help="a function in the kernel's file that returns (grid, arguments, expected)")
    add("--config", type=_config, metavar="N", help="a configuration of @triton.autotune, from 0; all for each")
    add("--num-warps", type=_positive, metavar="N", help="default: the configuration's or Triton's")
    add("--num-stages", type=_positive, metavar="N", help="likewise")
    add("--option", nargs="+", type=pair, action="extend", default=[], metavar="NAME=VALUE", help="of the backend: maxnreg=64")


def gates(command: Parser) -> None:
    """Adds the checks."""
    add = command.add_argument_group("checks").add_argument
    words = "programs per multiprocessor, for all devices or by backend: 8, or cuda=8 npu=1"
    add("--at-least", nargs="+", type=_bound, metavar="N", help=words)
    add("--no-spills", action="store_true", help="fail if registers are spilled")


def output(command: Parser) -> None:
    """Adds the forms of an answer."""
    group = command.add_argument_group("output")
    group.add_argument("--explain", action="store_true", help="also the reasons, and the count of each limit")
    group.add_argument("--facts", action="store_true", help="also the hardware's facts, with their origins")
    kept(group)


def kept(group: argparse._ActionsContainer) -> None:
    """Adds --json, --markdown and --save."""
    forms = group.add_mutually_exclusive_group()
    forms.add_argument("--json", action="store_true", help="as JSON: portable_probe/report.py")
    forms.add_argument("--markdown", action="store_true", help="as a table in Markdown")
    group.add_argument("--save", type=Path, metavar="FILE", help="also write the reports, for diff")


def softmaxes(options: argparse.Namespace) -> list[Case]:
    """Returns the softmaxes that the options mean."""
    masks = {*options.mask}
    if options.shapes and (options.rows or options.cols):
        options.error("--shapes replaces --rows and --cols")
    if {"boolean", "added"} <= masks or {"causal", "lower_right"} <= masks:
        options.error("--mask: boolean and added exclude each other, and so do causal and lower_right")
    if options.backward and options.softcap:
        options.error("--backward with --softcap is not one launch")
    shapes = options.shapes or [(options.rows or 4096, options.cols or 4096)]
    cases: list[Case] = []
    for (n_rows, n_cols), dtype in product(shapes, options.dtype):
        scores = Scores(
            scale=options.scale,
            temperature=options.temperature,
            cap=options.softcap,
            mask="bool" if "boolean" in masks else dtype if "added" in masks else None,
            causal="lower_right" if "lower_right" in masks else "upper_left" if "causal" in masks else None,
            sink=options.sink,
        )
        cases.append(
            SoftmaxProblem(n_rows=n_rows, n_cols=n_cols, dtype=dtype, scores=scores or None, backward=options.backward)
        )
    return cases


def kernel_call(options: argparse.Namespace) -> KernelCall:
    """Returns the user kernel that the options mean."""
    if options.verify and not options.case:
        options.error("verify --kernel requires --case NAME: a function that returns (grid, arguments, expected)")
    if options.suggest and not {"cols", "block"} <= dict(options.suggest).keys() <= {"rows", "cols", "block"}:
        options.error("--suggest takes rows=PARAMETER cols=PARAMETER block=PARAMETER, or nothing")
    words = re.sub(r",\s+", ",", " ".join(options.args)).split()
    values = {name: value_of(value) for name, value in options.option}
    values |= {name: getattr(options, name) for name in ("num_warps", "num_stages") if getattr(options, name)}
    config = None if options.config == "all" else options.config
    return KernelCall(name=options.kernel, arguments=dict(map(pair, words)), options=values, config=config, case=options.case)


def _wrong(text: str, words: str) -> argparse.ArgumentTypeError:
    return argparse.ArgumentTypeError(f"{text!r} is not {words}")


def kernel_name(text: str) -> str:
    """Parses FILE:NAME."""
    if ":" not in text:
        raise _wrong(text, "FILE:NAME")
    return text


def _dtype(text: str) -> str:
    name = SHORT.get(text.lower(), text.lower())
    if name not in DTYPE_BYTES:
        raise _wrong(text, f"one of {', '.join(DTYPE_BYTES)}")
    return name


def _config(text: str) -> int | str:
    return text if text == "all" else _positive(text, 0)


def _positive(text: str, least: int = 1) -> int:
    if not text.isdecimal() or int(text) < least:
        raise _wrong(text, f"a number from {least} on")
    return int(text)


def _bound(text: str) -> tuple[str, int]:
    """Parses "8" or "cuda=8"."""
    backend, _, number = text.rpartition("=")
    if backend and backend not in BACKENDS:
        raise _wrong(backend, f"one of {', '.join(BACKENDS)}")
    return backend, _positive(number)


def _cap(text: str) -> float:
    if not re.fullmatch(r"\d*\.?\d+(e[-+]?\d+)?", text) or not 0 < float(text) < float("inf"):
        raise _wrong(text, "a positive number")
    return float(text)


def _shape(text: str) -> tuple[int, int]:
    rows, _, cols = text.partition("x")
    return _positive(rows), _positive(cols)


def pair(text: str) -> tuple[str, str]:
    """Parses NAME=VALUE."""
    name, equals, value = text.partition("=")
    if not (name and equals and value):
        raise _wrong(text, "NAME=VALUE")
    return name, value
