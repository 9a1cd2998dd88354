"""The program `portable-softmax`: a subcommand for each question."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from portable_probe import options as words
from portable_probe import summary
from portable_probe.answers import differences, launches, said
from portable_probe.output import delivered
from portable_probe.profiles import list_profiles, new_profile, show_profile
from portable_probe.scores import OPTIONS
from portable_probe.tune import command as tune

NO_SOFTMAX = dict.fromkeys(("rows", "cols", "shapes", "dtype", "backward", *OPTIONS))
NO_KERNEL: dict[str, Any] = {"kernel": None, "arguments": {}, "options": {}, "case": None, "config": None, "suggest": None}


def main(arguments: list[str] | None = None) -> int:
    """Prints the answer to the command line and returns the exit code; see options.EXIT_CODES.

    Args:
        arguments: words of the command line; None for those of the process.

    Raises:
        SystemExit: wrong usage, with code 2.
    """
    given = sys.argv[1:] if arguments is None else arguments
    options, unknown = parser().parse_known_args(given)
    if unknown:
        options.error(f"unrecognized arguments: {' '.join(unknown)}")
    options.words = given
    return delivered(lambda: said(options))


def parser() -> words.Parser:
    """Returns the program's parser; wrong usage ends the process with code 2."""
    version = sys.modules["portable_softmax"].__version__  # it is loaded: this is a part of it
    made = words.Parser(
        prog="portable-softmax",
        description="Launches of the softmax and of any Triton kernel, on any device.",
        epilog=f"COMMAND --help tells its options. {words.EXIT_CODES}",
    )
    made.add_argument("--version", action="version", version=f"portable-softmax {version}")
    commands = made.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for name, (about, add) in COMMANDS.items():
        command = commands.add_parser(name, help=about, description=f"{about[0].upper()}{about[1:]}.")
        command.set_defaults(error=command.error, json=False)
        add(command)
    return made


def _plan(command: words.Parser) -> None:
    words.which_device(command)
    words.which_softmax(command)
    words.shown(command)
    command.set_defaults(answer=launches, verify=False, **NO_KERNEL)


def _kernel(command: words.Parser) -> None:
    command.add_argument("kernel", type=words.kernel_name, metavar="FILE:NAME", help="a @triton.jit function, as decorated")
    words.which_device(command)
    words.which_launch(command)
    words.shown(command)
    command.set_defaults(answer=launches, verify=False, **NO_SOFTMAX)


def _verify(command: words.Parser) -> None:
    words.which_device(command)
    words.which_softmax(command)
    command.add_argument(
        "--kernel", type=words.kernel_name, metavar="FILE:NAME", help="another @triton.jit function instead of the softmax"
    )
    words.which_launch(command)
    words.shown(command)
    command.set_defaults(answer=launches, verify=True)
    command.usage = "%(prog)s [--on NAME] [--kernel FILE:NAME --case NAME] [OPTIONS]"


def _diff(command: words.Parser) -> None:
    command.add_argument("file", type=Path, metavar="FILE", help="what --save wrote; it is asked again")
    command.add_argument("--kernel", metavar="FILE:NAME", help="the kernel whose file may be loaded")
    words.require(command)
    words.keep(command)
    words.json_or_markdown(command.add_mutually_exclusive_group())
    command.set_defaults(answer=differences)


def _profiles(command: words.Parser) -> None:
    command.add_argument("--json", action="store_true", help="the names as JSON")
    command.set_defaults(answer=list_profiles)
    actions = command.add_subparsers(metavar="ACTION")
    actions.add_parser("list", help="the products that have a profile (what comes without an ACTION)")
    show = actions.add_parser("show", help="one profile's facts, with their sources")
    show.add_argument("name", metavar="NAME", help="such as amd/mi300x")
    show.add_argument("--json", action="store_true", help="the device's limits as JSON instead")
    show.set_defaults(answer=show_profile)
    new = actions.add_parser("new", help="write a profile of the device here, with what its driver reports")
    new.add_argument("directory", type=Path, metavar="DIR", help="where to write")
    new.set_defaults(answer=new_profile)


COMMANDS: dict[str, tuple[str, Callable[[Any], None]]] = {
    "plan": ("the device that is here or others, launches of softmaxes on them, and why", _plan),
    "kernel": ("the launch that Triton makes of a kernel of yours", _kernel),
    "verify": ("run the softmax or a kernel of yours, and compare", _verify),
    "diff": ("ask a saved answer again, and show what changed", _diff),
    "profiles": ("hardware profiles: list, show, new", _profiles),
    "report": ("Markdown of several runs: devices by cases, and what changed", summary.add),
    "tune": ("fit what launches cost on the device that is here", tune.add),
}
