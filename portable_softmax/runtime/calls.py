"""Launches of a model's calls, noted while it runs, so that another process can prepare them."""

from collections.abc import Iterator
from os import PathLike
from pathlib import Path
from typing import Literal

import msgspec

from portable_softmax.planning.problem import Problem


class _File(msgspec.Struct, forbid_unknown_fields=True):
    """Contents of a file of calls."""

    portable_softmax: Literal["calls"]
    problems: list[Problem]


class Calls:
    """Problems that were launched, each once; of any device, as plans are made where they are needed."""

    def __init__(self) -> None:
        self._problems: dict[Problem, None] = {}

    def __iter__(self) -> Iterator[Problem]:
        return iter(list(self._problems))

    def __len__(self) -> int:
        return len(self._problems)

    def __repr__(self) -> str:
        return f"Calls({len(self)} launches)"

    def add(self, problem: Problem) -> None:
        """Adds a problem, unless it is among them."""
        self._problems[problem] = None

    def save(self, path: str | PathLike[str]) -> None:
        """Writes a JSON file, which `warm_up` takes.

        Raises:
            OSError: it cannot be written.
        """
        Path(path).write_bytes(msgspec.json.format(msgspec.json.encode(_File("calls", list(self)))))

    @staticmethod
    def load(path: str | PathLike[str]) -> "Calls":
        """Returns the calls of a file that `save` has written.

        Raises:
            OSError: it cannot be read.
            ValueError: it is no such file, or one of another release whose launches are described in another way.
        """
        try:
            problems = msgspec.json.decode(Path(path).read_bytes(), type=_File).problems
        except msgspec.DecodeError as error:
            raise ValueError(f"{path} is no file of calls that this release can read: {error}; save the calls again") from error
        calls = Calls()
        for problem in problems:
            calls.add(problem)
        return calls


_watching: list[Calls] = []  # of all threads, as autograd runs gradients in its own


def begin(calls: Calls) -> None:
    """Adds to `calls` from here on what is launched for the first time."""
    _watching.append(calls)


def end(calls: Calls) -> None:
    """Adds nothing more to `calls`."""
    _watching[:] = [each for each in _watching if each is not calls]


def note(problem: Problem) -> None:
    """Adds a problem to all calls that are noted now."""
    for calls in _watching:
        calls.add(problem)
