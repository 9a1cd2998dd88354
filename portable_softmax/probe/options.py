"""The command line of the probe."""

import argparse
import re
from typing import Any

from portable_softmax.devices.backends import BACKENDS
from portable_softmax.devices.backends.base import DTYPE_BYTES
from portable_softmax.probe import usage
from portable_softmax.probe.regression import KINDS

EXIT_CODES = (
    "Exit codes: 0 answered, also that there is no accelerator; 1 something is broken, or a result is wrong; 2 usage; "
    "3 worse than the baseline."
)


def parser() -> argparse.ArgumentParser:
    """Returns the parser of the probe's command line; wrong usage ends the process with code 2."""
    made = argparse.ArgumentParser(
        prog="portable-softmax",
        description="The device that Triton drives, or one that is not here; the launch of a softmax on it, and why.",
        epilog=f"{EXIT_CODES} Another command: portable-softmax report RUN... makes a page of several runs.",
    )
    _which_device(made.add_argument_group("device"))
    _which_kernel(made.add_argument_group("kernel"))
    _what_to_show(made.add_argument_group("output"))
    _earlier_run(made.add_argument_group("regressions"))
    return made


def parsed(arguments: list[str]) -> argparse.Namespace:
    """Parses a command line, kept as `words`, and refuses options that do not go together.

    Raises:
        SystemExit: wrong usage, with code 2.
    """
    made = parser()
    options = made.parse_args(arguments)
    options.words = arguments
    for complaint in usage.complaints(options):
        made.error(complaint)
    return options


def _which_device(group: argparse._ArgumentGroup) -> None:
    which = group.add_mutually_exclusive_group()
    which.add_argument("--profile", metavar="NAME", help="a device that need not be here, such as amd/mi300x")
    which.add_argument("--index", type=int, metavar="N", help="of the device here, as torch counts (its current one)")
    which.add_argument("--compare", nargs="+", metavar="NAME", help="profiles side by side")
    group.add_argument("--require", choices=tuple(BACKENDS), help="fail unless that backend has the device")
    which.add_argument("--list", action="store_true", help="the products that have a profile")
    which.add_argument("--matrix", action="store_true", help="the CI matrix of vendors, for GitHub's fromJSON")
    which.add_argument("--new-profile", metavar="DIR", help="write a profile of the device here, and what its driver tells")
    group.add_argument("--backend", nargs="+", choices=tuple(BACKENDS), help="of --matrix: legs of these alone")
    group.add_argument("--runner", nargs="+", metavar="LABEL", help="of --matrix: legs that runners with these labels can take")
    group.add_argument("--gitlab", action="store_true", help="of --matrix: as a child pipeline of GitLab's")
    group.add_argument("--offline", action="store_true", help="of --matrix: legs that need no accelerator")


def _which_kernel(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--rows", type=_positive, metavar="N", help="rows of the softmax (4096)")
    group.add_argument("--cols", type=_positive, metavar="N", help="columns of the softmax (4096)")
    group.add_argument("--shapes", type=_shape, nargs="+", metavar="ROWSxCOLS", help="several, instead of --rows and --cols")
    group.add_argument("--dtype", nargs="+", choices=tuple(DTYPE_BYTES), help="of input and output, one or more (float32)")
    group.add_argument(
        "--kernel",
        metavar="FILE:NAME",
        help="another @triton.jit function instead of the softmax; of --baseline: the one that it may load",
    )
    which_launch(group)


def which_launch(group: argparse._ActionsContainer) -> None:
    """Adds the options that say how a kernel is launched."""
    several: dict[str, Any] = {"nargs": "+", "action": "extend", "default": []}
    group.add_argument("--args", **several, type=_words, metavar="'NAME=VALUE ...'", help="'x=f16[4096,4096] n=4096 BLOCK=64'")
    group.add_argument("--case", metavar="NAME", help="the function of the kernel's file that makes its arguments")
    group.add_argument("--signature", **several, type=_pair, metavar="NAME=TYPE", help="x_ptr=*fp32:16 n=i32 ...")
    group.add_argument("--constexpr", **several, type=_pair, metavar="NAME=VALUE", help="BLOCK_SIZE=1024 EPS=1e-6 ...")
    group.add_argument("--config", type=int, metavar="N", help="one of the configurations of @triton.autotune")
    group.add_argument("--num-warps", type=_positive, metavar="N", help="instead of the configuration's or Triton's own")
    group.add_argument("--num-stages", type=_positive, metavar="N", help="instead of the configuration's or Triton's own")
    group.add_argument("--option", **several, type=_pair, metavar="NAME=VALUE", help="of Triton's backend: maxnreg=64 ...")


def _what_to_show(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--explain", action="store_true", help="each limit's own count, which binds, and the next step")
    group.add_argument("--textbook", action="store_true", help="the tutorial's occupancy, and why it differs")
    group.add_argument("--verify", action="store_true", help="run the kernel and compare; with --profile, in a virtual device")
    form = group.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="the same as JSON, described in docs/probe.md")
    form.add_argument("--markdown", action="store_true", help="the same as a table in Markdown")
    group.add_argument("--dump", metavar="STAGES", help="write ttir, ttgir, llir, ptx, cubin, amdgcn ... or all of them")
    group.add_argument("--out", metavar="DIR", help="where --dump writes (.)")
    group.add_argument("--plot", metavar="FILE.png", help="programs per multiprocessor over row length (needs matplotlib)")


def _earlier_run(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--save", metavar="FILE", help="also write the answer there, for --baseline")
    group.add_argument("--baseline", metavar="FILE", help="ask again what FILE holds, and show what changed")
    group.add_argument(
        "--tolerate", type=tolerated, nargs="+", action="extend", default=[], metavar="KIND[=BY]",
        help=f"changes that are no regression, of {', '.join(KINDS)}; by how much at most, or any",
    )  # fmt: skip


def _positive(text: str) -> int:
    if (value := int(text)) < 1:
        raise argparse.ArgumentTypeError(f"{value} is not positive")
    return value


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
    if equals and kind == "plan":
        raise argparse.ArgumentTypeError("a plan is the same or not; leave out the number")
    if equals and not float(by) >= 0:
        raise argparse.ArgumentTypeError(f"{by!r} of {kind} should be 0 or more")
    return kind, float(by) if equals else None


def _words(text: str) -> list[tuple[str, str]]:
    return [_pair(word) for word in re.sub(r",\s+", ",", text).split()]


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not (name and equals and value):
        raise argparse.ArgumentTypeError(f"{text!r} should be NAME=VALUE")
    return name, value
