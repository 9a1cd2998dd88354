"""The probe in one command, scripts/probe_device.py: all options, without subcommands."""

import argparse
import sys
from pathlib import Path

from portable_softmax.probe.answers import answer, said
from portable_softmax.probe.delivery import delivered
from portable_softmax.probe.matrix import print_legs
from portable_softmax.probe.options import parsed
from portable_softmax.probe.profile_commands import list_profiles, new_profile


def main(arguments: list[str] | None = None) -> int:
    """Prints the answer to the command line and returns the exit code; see options.EXIT_CODES.

    Args:
        arguments: words of the command line; None for those of the process.

    Raises:
        SystemExit: wrong usage, with code 2.
    """
    words = sys.argv[1:] if arguments is None else arguments
    if words[:1] == ["report"]:
        from portable_softmax.probe.page.command import main as report

        return delivered(lambda: report(words[1:]))
    options = parsed(words)
    options.answer, options.program = _answer, "portable_softmax.probe"
    return delivered(lambda: said(options))


def _answer(options: argparse.Namespace) -> int:
    if options.list:
        return list_profiles(options)
    if options.matrix:
        return print_legs(options.backend, options.runner, options.offline, options.gitlab)
    if options.new_profile:
        return new_profile(Path(options.new_profile))
    return answer(options)


if __name__ == "__main__":
    raise SystemExit(main())
