"""The command line's options, which subcommands share, and the command that has them all."""

import argparse
import re
from typing import Any, NoReturn

from portable_softmax.devices.backends import BACKENDS
from portable_softmax.devices.backends.base import DTYPE_BYTES
from portable_softmax.probe import usage
from portable_softmax.probe.regression import KINDS
from portable_softmax.probe.scores import which_scores

SHORT = {"float16": ("fp16", "f16", "half"), "bfloat16": ("bf16",), "float32": ("fp32", "f32"), "float64": ("fp64", "f64")}
EXIT_CODES = "Exit codes: 0 answered; 1 broken or wrong; 2 wrong words; 3 worse than the baseline; 4 not compiled."


class Parser(argparse.ArgumentParser):
    """A parser whose complaint is one line."""

    @property
    def spelled(self) -> dict[str, str]:
        """Returns how each value is spelled on the command line, by its name in the code: as an option, or as its place."""
        return {each.dest: each.option_strings[-1] if each.option_strings else str(each.metavar) for each in self._actions}

    def error(self, message: str) -> NoReturn:
        """Prints the complaint and ends the process with code 2."""
        self.exit(2, f"{self.prog}: {message}; {self.prog} --help tells more\n")


def parser() -> Parser:
    """Returns the parser of the command that has all options; wrong usage ends the process with code 2."""
    made = Parser(
        prog="probe_device.py",
        description="The device that Triton drives, or one that is not here; the launch of a softmax on it, and why.",
        epilog=f"{EXIT_CODES} The program `portable-softmax` has the same in subcommands.",
    )
    _which_device(made.add_argument_group("device"))
    kernel = made.add_argument_group("kernel")
    which_softmax(kernel)
    kernel.add_argument(
        "--kernel",
        metavar="FILE:NAME",
        help="another @triton.jit function instead of the softmax; of --baseline: the one that it may load",
    )
    which_launch(kernel)
    output = made.add_argument_group("output")
    reasons(output)
    output.add_argument("--verify", action="store_true", help="run the kernel and compare; with --profile, in a virtual device")
    form(output)
    extras(output)
    earlier = made.add_argument_group("regressions")
    keep(earlier)
    earlier.add_argument("--baseline", metavar="FILE", help="ask again what FILE holds, and show what changed")
    tolerate(earlier)
    made.set_defaults(facts=True, verdict=False)
    return made


def parsed(arguments: list[str]) -> argparse.Namespace:
    """Parses a command line, kept as `words`, and refuses options that do not go together.

    Raises:
        SystemExit: wrong usage, with code 2.
    """
    made = parser()
    options = made.parse_args(arguments)
    options.words, options.spelled = arguments, made.spelled
    for complaint in usage.complaints(options):
        made.error(complaint)
    return options


def _which_device(group: argparse._ArgumentGroup) -> None:
    which = group.add_mutually_exclusive_group()
    which.add_argument("--profile", metavar="NAME", help="a device that need not be here, such as amd/mi300x")
    which.add_argument("--compare", nargs="+", metavar="NAME", help="profiles side by side")
    live(which, group)
    which.add_argument("--list", action="store_true", help="the products that have a profile")
    which.add_argument("--matrix", action="store_true", help="the CI matrix of vendors, for GitHub's fromJSON")
    which.add_argument("--new-profile", metavar="DIR", help="write a profile of the device here, and what its driver tells")
    which_legs(group)


def live(which: argparse._ActionsContainer, group: argparse._ActionsContainer) -> None:
    """Adds the options of a device that is here."""
    which.add_argument("--index", type=int, metavar="N", help="of the device here, as torch counts (its current one)")
    group.add_argument("--require", choices=tuple(BACKENDS), help="fail unless that backend has the device")


def which_legs(group: argparse._ActionsContainer) -> None:
    """Adds the options that choose legs of CI."""
    group.add_argument("--backend", nargs="+", choices=tuple(BACKENDS), help="legs of these alone")
    group.add_argument("--runner", nargs="+", metavar="LABEL", help="legs that runners with these labels can take")
    group.add_argument("--gitlab", action="store_true", help="legs as a child pipeline of GitLab's")
    group.add_argument("--offline", action="store_true", help="legs that need no accelerator")


def which_softmax(group: argparse._ActionsContainer) -> None:
    """Adds the options of a softmax."""
    group.add_argument("--rows", type=_positive, metavar="N", help="rows of the softmax (4096)")
    group.add_argument("--cols", type=_positive, metavar="N", help="columns of the softmax (4096)")
    group.add_argument("--shapes", type=_shape, nargs="+", metavar="ROWSxCOLS", help="several, instead of --rows and --cols")
    group.add_argument(
        "--dtype", nargs="+", type=_dtype, metavar="TYPE", help=f"of {', '.join(DTYPE_BYTES)}; one or more (float32)"
    )
    group.add_argument("--backward", action="store_true", help="its gradient instead")
    which_scores(group)


def which_launch(group: argparse._ActionsContainer) -> None:
    """Adds the options that say how a kernel is launched."""
    several: dict[str, Any] = {"nargs": "+", "action": "extend", "default": []}
    group.add_argument("--args", **several, type=_words, metavar="'NAME=VALUE ...'", help="'x=f16[4096,4096] n=4096 BLOCK=64'")
    group.add_argument("--case", metavar="NAME", help="the function of the kernel's file that makes its arguments")
    group.add_argument("--signature", **several, type=_pair, metavar="NAME=TYPE", help="x_ptr=*fp32:16 n=i32 ...")
    group.add_argument("--constexpr", **several, type=_pair, metavar="NAME=VALUE", help="BLOCK_SIZE=1024 EPS=1e-6 ...")
    group.add_argument("--config", type=_config, metavar="N", help="a configuration of @triton.autotune; all: each of them")
    group.add_argument("--num-warps", type=_positive, metavar="N", help="instead of the configuration's or Triton's own")
    group.add_argument("--num-stages", type=_positive, metavar="N", help="instead of the configuration's or Triton's own")
    group.add_argument("--option", **several, type=_pair, metavar="NAME=VALUE", help="of Triton's backend: maxnreg=64 ...")


def reasons(group: argparse._ActionsContainer) -> None:
    """Adds the options that ask why."""
    group.add_argument("--explain", action="store_true", help="each limit's own count, and which binds")
    group.add_argument("--textbook", action="store_true", help="the tutorial's occupancy, and why it differs")


def form(group: argparse._ArgumentGroup) -> None:
    """Adds the forms of an answer."""
    forms = group.add_mutually_exclusive_group()
    forms.add_argument("--json", action="store_true", help="as JSON, described in docs/probe.md")
    forms.add_argument("--markdown", action="store_true", help="as a table in Markdown")
    forms.add_argument("--csv", action="store_true", help="as a table for a spreadsheet")
    group.add_argument("--brief", action="store_true", help="a line for each case; with --json too")


def extras(group: argparse._ActionsContainer, plot: bool = True) -> None:
    """Adds what is written to files."""
    group.add_argument("--dump", metavar="STAGES", help="write ttir, ttgir, llir, ptx, cubin, amdgcn ... or all of them")
    group.add_argument("--out", metavar="DIR", help="where --dump writes (.)")
    if plot:
        group.add_argument("--plot", metavar="FILE.png", help="occupancy over row length (needs matplotlib)")


def keep(group: argparse._ActionsContainer) -> None:
    """Adds what keeps an answer."""
    group.add_argument("--save", metavar="FILE", help="also write the answer there, to compare with later")


def tolerate(group: argparse._ActionsContainer) -> None:
    """Adds what is no regression."""
    group.add_argument(
        "--tolerate", type=tolerated, nargs="+", action="extend", default=[], metavar="KIND[=BY]",
        help=f"changes that are no regression, of {', '.join(KINDS)}: KIND=BY by that much at most, KIND or KIND=any by any",
    )  # fmt: skip


def _dtype(text: str) -> str:
    names = {name.lower(): known for known in DTYPE_BYTES for name in (known, *SHORT.get(known, ()))}
    if text.lower() not in names:
        raise argparse.ArgumentTypeError(f"{text!r} should be one of {', '.join(DTYPE_BYTES)}")
    return names[text.lower()]


def _config(text: str) -> int | str:
    if text != "all" and not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} should be the number of a configuration, from 0, or all")
    return text if text == "all" else int(text)


def _positive(text: str) -> int:
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"{text!r} is no positive number")
    return int(text)


def _shape(text: str) -> tuple[int, int]:
    rows, times, cols = text.partition("x")
    if not times:
        raise argparse.ArgumentTypeError(f"{text!r} should be ROWSxCOLS")
    return _positive(rows), _positive(cols)


def tolerated(text: str) -> tuple[str, float | None]:
    """Parses KIND or KIND=BY: a kind of change, and by how much worse is still all right (None: any).

    Raises:
        argparse.ArgumentTypeError: it is neither.
    """
    kind, equals, by = text.partition("=")
    if kind not in KINDS:
        raise argparse.ArgumentTypeError(f"{kind!r} should be one of {', '.join(KINDS)}")
    if by == "any":
        return kind, None
    if equals and kind == "plan":
        raise argparse.ArgumentTypeError("a plan is the same or not; leave out the number")
    if equals and not _is_least_0(by):
        raise argparse.ArgumentTypeError(f"{by!r} of {kind} should be 0 or more, or any")
    return kind, float(by) if equals else None


def _is_least_0(text: str) -> bool:
    try:
        return float(text) >= 0
    except ValueError:
        return False


def _words(text: str) -> list[tuple[str, str]]:
    return [_pair(word) for word in re.sub(r",\s+", ",", text).split()]


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not (name and equals and value):
        raise argparse.ArgumentTypeError(f"{text!r} should be NAME=VALUE")
    return name, value
