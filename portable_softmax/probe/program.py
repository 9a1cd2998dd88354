"""The program `portable-softmax`: a subcommand for each question."""

import argparse
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from portable_softmax.probe import options as words
from portable_softmax.probe.answers import answer, said
from portable_softmax.probe.delivery import delivered
from portable_softmax.probe.doctor import doctor
from portable_softmax.probe.limits import FORMS
from portable_softmax.probe.matrix import print_legs
from portable_softmax.probe.profile_commands import list_profiles, new_profile, show_profile
from portable_softmax.probe.usage import complaints


def main(arguments: list[str] | None = None, elsewhere: Mapping[str, Callable[[list[str]], int]] = MappingProxyType({})) -> int:
    """Prints the answer to the command line and returns the exit code; see options.EXIT_CODES.

    Args:
        arguments: words of the command line; None for those of the process.
        elsewhere: commands of other rooms, which take the words after theirs.

    Raises:
        SystemExit: wrong usage, with code 2.
    """
    given = sys.argv[1:] if arguments is None else arguments
    for words_of, command in elsewhere.items():
        if given[: len(words_of.split())] == words_of.split():
            return command(given[len(words_of.split()) :])
    if given[:1] == ["report"]:
        from portable_softmax.probe.page.command import main as report

        return delivered(lambda: report(given[1:]))
    program = parser()
    asked = program.parse_args(given)
    options = argparse.Namespace(**{**vars(words.parser().parse_args([])), **vars(asked)})
    if "on" in options.spelled:
        options.spelled |= dict.fromkeys(("profile", "compare"), options.spelled["on"])
    if on := getattr(options, "on", None):
        options.profile, options.compare = (on[0], None) if len(on) == 1 else (None, on)
    options.words, options.program = given, "portable_softmax"
    for complaint in complaints(options) if options.answer is answer else ():
        options.error(complaint)
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
        command.set_defaults(answer=answer)
        add(command)
        command.set_defaults(spelled=command.spelled, error=command.error)
    return made


def _probe(command: words.Parser) -> None:
    words.live(command, command)
    words.which_softmax(command)
    _shown(command)
    command.add_argument("--verify", action="store_true", help="run the softmax and compare it with float64")
    command.set_defaults(facts=True)


def _plan(command: words.Parser) -> None:
    command.add_argument("profile", nargs="?", metavar="NAME", help="a device that need not be here (the one that is here)")
    words.which_softmax(command)
    _shown(command)
    words.extras(command)


def _compare(command: words.Parser) -> None:
    command.add_argument("compare", nargs="+", metavar="NAME", help="devices that need not be here")
    words.which_softmax(command)
    _shown(command)
    words.extras(command)


def _kernel(command: words.Parser) -> None:
    command.add_argument("kernel", metavar="FILE:NAME", help="a @triton.jit function, with its decorators")
    command.add_argument("--on", nargs="+", metavar="DEVICE", help="devices that need not be here")
    words.which_launch(command)
    _shown(command)
    words.extras(command, plot=False)


def _verify(command: words.Parser) -> None:
    command.add_argument("profile", nargs="?", metavar="NAME", help="a device of which there is a virtual one (the one here)")
    words.which_softmax(command)
    command.add_argument("--kernel", metavar="FILE:NAME", help="another @triton.jit function instead of the softmax")
    words.which_launch(command)
    _shown(command)
    command.set_defaults(verify=True, verdict=True)
    command.usage = "%(prog)s [NAME] [--kernel FILE:NAME --case NAME] [OPTIONS]"


def _diff(command: words.Parser) -> None:
    command.add_argument("baseline", metavar="FILE", help="what --save wrote; it is asked again")
    command.add_argument("--kernel", metavar="FILE:NAME", help="the kernel whose file may be loaded")
    words.tolerate(command)
    words.keep(command)
    forms = command.add_mutually_exclusive_group()
    forms.add_argument("--json", action="store_true", help="as JSON, described in docs/probe.md")
    forms.add_argument("--markdown", action="store_true", help="as a table in Markdown")


def _profiles(command: words.Parser) -> None:
    command.add_argument("--json", action="store_true", help="the names as JSON")
    command.set_defaults(answer=list_profiles)
    actions = command.add_subparsers(metavar="ACTION")
    actions.add_parser("list", help="the products that have a profile (what comes without an ACTION)")
    show = actions.add_parser("show", help="one profile's facts, with their sources")
    show.add_argument("name", metavar="NAME", help="such as amd/mi300x")
    show.add_argument("--as", dest="form", choices=tuple(FORMS), help="limits, XLA's target or torch's properties instead")
    show.set_defaults(answer=show_profile)
    actions.add_parser("check", help="check a file that `tune` wrote, without the device")
    new = actions.add_parser("new", help="write a profile of the device here, and what its driver tells")
    new.add_argument("directory", type=Path, metavar="DIR", help="where to write")
    new.set_defaults(answer=lambda options: new_profile(options.directory))


def _matrix(command: words.Parser) -> None:
    words.which_legs(command)
    command.set_defaults(answer=lambda each: print_legs(each.backend, each.runner, each.offline, each.gitlab))


def _doctor(command: words.Parser) -> None:
    command.set_defaults(answer=lambda options: doctor())


def _shown(command: words.Parser) -> None:
    output = command.add_argument_group("output")
    words.reasons(output)
    output.add_argument("--facts", action="store_true", help="also the facts of the hardware, and who told them")
    words.form(output)
    words.keep(output)


COMMANDS: dict[str, tuple[str, Callable[[Any], None]]] = {
    "probe": ("the device that is here, its facts, and a softmax on it", _probe),
    "plan": ("the launch of a softmax on one device, and why", _plan),
    "compare": ("the launches of softmaxes on several devices", _compare),
    "kernel": ("the launch that Triton makes of a kernel of yours", _kernel),
    "verify": ("run the softmax or a kernel of yours, and compare", _verify),
    "diff": ("ask a saved answer again, and show what changed", _diff),
    "profiles": ("hardware profiles: list, show, new, check", _profiles),
    "matrix": ("legs of the CI matrix of vendors", _matrix),
    "report": ("one page of several runs", lambda command: None),
    "tune": ("measure which numbers launches are best computed with", lambda command: None),  # see portable_softmax/__main__.py
    "doctor": ("what is installed, what is wrong, and what to type", _doctor),
}
