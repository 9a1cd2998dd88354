"""The program `portable-softmax`, also as `python -m portable_probe`."""

from collections.abc import Sequence

from portable_probe.program import main as asked


def main(arguments: list[str] | None = None) -> int:
    """Prints the answer to the command line and returns the exit code.

    Args:
        arguments: words of the command line; None for those of the process.

    Raises:
        SystemExit: wrong usage, with code 2.
    """
    return asked(arguments, {"tune": _tune, "profiles check": lambda words: _tune(["check", *words])})


def _tune(words: Sequence[str]) -> int:
    from portable_probe.tune.__main__ import main as tune

    return tune(words)


if __name__ == "__main__":
    raise SystemExit(main())
