"""Options of the command line that subcommands share, and those that do not go together: none is ignored in silence."""

import argparse
import re
from collections.abc import Iterator, Sequence
from typing import Any, NoReturn

from portable_probe.scores import OPTIONS, which_scores
from portable_probe.scores import complaints as scores_complaints
from portable_softmax.devices.backends import BACKENDS
from portable_softmax.devices.backends.base import DTYPE_BYTES
from portable_softmax.devices.names import find_profile
from portable_softmax.errors import ProfileError

SHORT = {"float16": ("fp16", "f16", "half"), "bfloat16": ("bf16",), "float32": ("fp32", "f32")}
VIRTUAL = ("hip",)  # backends of which a kernel runs without the device
SOFTMAX = {"rows", "cols", "shapes", "dtype", "backward", *OPTIONS}
OF_KERNEL = {"arguments": "--args", "options": "--option", "case": "--case", "config": "--config", "suggest": "--suggest"}
OF_ROWS = {"rows", "cols", "block"}
EXIT_CODES = "Exit codes: 0 answered; 1 broken or wrong; 2 wrong words; 3 worse than the baseline; 4 not compiled."


class Parser(argparse.ArgumentParser):
    """A parser whose complaint is one line."""

    def error(self, message: str) -> NoReturn:
        """Prints the complaint and ends the process with code 2."""
        self.exit(2, f"{self.prog}: {message}; {self.prog} --help tells more\n")


class Pairs(argparse.Action):
    """Collects (name, value) of several options in one dict, and refuses a name that comes twice."""

    def __call__(self, parser: Any, namespace: argparse.Namespace, values: Any, option: "str | None" = None) -> None:
        """Adds one pair, pairs, or lists of pairs."""
        known = dict(getattr(namespace, self.dest))
        for each in [values] if isinstance(values, tuple) else values:
            for name, value in each if isinstance(each, list) else [each]:
                if name in known:
                    raise argparse.ArgumentError(self, f"{name} stands more than once; leave out all but one")
                known[name] = value
        setattr(namespace, self.dest, known)


def which_device(command: argparse.ArgumentParser) -> None:
    """Adds the options of a device; without any it is the one that is here."""
    command.add_argument(
        "--on", nargs="+", type=_name, metavar="NAME", help="devices that need not be here, such as amd/mi300x"
    )
    require(command)


def require(command: argparse.ArgumentParser) -> None:
    """Adds what a device has to be."""
    command.add_argument("--require", choices=tuple(BACKENDS), help="fail unless that backend has the device")


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
    options: dict[str, Any] = {"action": Pairs, "dest": "options", "default": {}}
    group.add_argument(
        "--args", nargs="+", action=Pairs, dest="arguments", default={}, type=_words,
        metavar="'NAME=VALUE ...'", help="'x=f16[4096,4096] n=4096 BLOCK=64'",
    )  # fmt: skip
    group.add_argument("--case", metavar="NAME", help="the function of the kernel's file that makes its arguments")
    group.add_argument("--config", type=_config, metavar="N", help="a configuration of @triton.autotune; all: each of them")
    group.add_argument(
        "--suggest", type=_pair, nargs="*", metavar="NAME=PARAMETER",
        help="all warps and stages, best first; of a kernel that goes over rows the best launch: rows=N cols=M block=BLOCK",
    )  # fmt: skip
    for name in ("num_warps", "num_stages"):
        option, kind = f"--{name.replace('_', '-')}", _number_of(name)
        group.add_argument(option, **options, type=kind, metavar="N", help="instead of the configuration's or Triton's own")
    group.add_argument(
        "--option", **options, nargs="+", type=_pair, metavar="NAME=VALUE", help="of Triton's backend: maxnreg=64 ..."
    )


def kernel_name(text: str) -> str:
    """Parses FILE:NAME."""
    if ":" not in text:
        raise argparse.ArgumentTypeError(f"a kernel is named FILE:NAME, not {text!r}")
    return text


def shown(command: argparse.ArgumentParser) -> None:
    """Adds the forms of an answer, and what is written to files."""
    output = command.add_argument_group("output")
    output.add_argument("--explain", action="store_true", help="each limit's own count, and which binds")
    output.add_argument("--facts", action="store_true", help="also the facts of the hardware, and who told them")
    json_or_markdown(output.add_mutually_exclusive_group())
    keep(output)
    output.add_argument("--dump", metavar="STAGES", help="write ttir, ttgir, llir, ptx, cubin, amdgcn ... or all of them")
    output.add_argument("--out", metavar="DIR", help="where --dump writes (.)")


def json_or_markdown(forms: argparse._ActionsContainer) -> None:
    """Adds the forms that every answer has."""
    forms.add_argument("--json", action="store_true", help="as JSON, described in docs/probe.md")
    forms.add_argument("--markdown", action="store_true", help="as a table in Markdown")


def keep(group: argparse._ActionsContainer) -> None:
    """Adds what keeps an answer."""
    group.add_argument("--save", metavar="FILE", help="also write the answer there, to compare with later")


def named(names: Sequence[str]) -> str:
    """Returns names of options as they are typed."""
    return ", ".join(f"--{name.replace('_', '-')}" for name in sorted(names))


def complaints(options: argparse.Namespace) -> Iterator[str]:
    """Yields what is wrong with the options together, in words for their user."""
    given = {name for name, value in vars(options).items() if value not in (None, False, [], {})}
    if "shapes" in given and (unused := given & {"rows", "cols"}):
        yield f"--shapes has no use for {named([*unused])}"
    if options.kernel and (unused := given & SOFTMAX):
        yield f"--kernel has no use for {named([*unused])}, which are of the softmax"
    if not options.kernel and (unused := given & OF_KERNEL.keys()):
        yield f"{', '.join(OF_KERNEL[name] for name in sorted(unused))} are of a kernel of yours; name it: --kernel FILE:NAME"
    yield from scores_complaints(options, given)
    if options.suggest is not None and (unused := given & {"config", "dump"}):
        yield f"--suggest has no use for {named([*unused])}"
    if options.suggest and {name for name, _ in options.suggest} != OF_ROWS:
        yield "--suggest of a kernel that goes over rows names three of its parameters: rows=N cols=M block=BLOCK"
    if options.verify and (options.on and not _virtual(options.on)):
        yield (
            "a kernel is verified on the device that is here or in Triton's interpreter if no device is named; "
            f"of devices that are not here, there is a virtual one for {' and '.join(VIRTUAL)} alone, such as amd/mi300x"
        )
    elif options.verify and options.kernel and not options.case:
        yield "a kernel is verified by --case NAME: a function of its file that gives grid, arguments and what should come out"
    if "out" in given and "dump" not in given:
        yield "--out says where --dump writes, and there is no --dump"


def _virtual(names: list[str]) -> bool:
    """Tells whether a kernel can run on a device that is not here; a wrong name is told when its device is looked for."""
    try:
        return len(names) == 1 and find_profile(names[0]).backend in (*VIRTUAL, "interpreter")
    except ProfileError:
        return True


def _name(text: str) -> str:
    if not text.strip():
        raise argparse.ArgumentTypeError("it is empty; `portable-softmax profiles` lists the products")
    return text


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


def _number_of(name: str) -> Any:
    return lambda text: (name, str(_positive(text)))


def _shape(text: str) -> tuple[int, int]:
    rows, times, cols = text.partition("x")
    if not times:
        raise argparse.ArgumentTypeError(f"{text!r} should be ROWSxCOLS")
    return _positive(rows), _positive(cols)


def _words(text: str) -> list[tuple[str, str]]:
    return [_pair(word) for word in re.sub(r",\s+", ",", text).split()]


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not (name and equals and value):
        raise argparse.ArgumentTypeError(f"{text!r} should be NAME=VALUE")
    return name, value
