"""Jobs in processes of their own: one that crashes, or gives no answer in time, costs its process and nothing else."""

import logging
import multiprocessing
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import Any

from portable_softmax.errors import PortableSoftmaxError

START_S = 180.0  # in which a process has imported what it needs
KILL_S = 10.0  # in which a process ends that was killed; one that a driver holds is left behind

Job = tuple[Any, ...]


@dataclass(frozen=True)
class Failed:
    """A job that has no answer, and the reason."""

    reason: str


class WrongResultError(PortableSoftmaxError):
    """A launch computes another result than float64."""


def answers(
    function: Callable[..., Any], jobs: Iterable[Job], n_processes: int, limit_s: float, ends: float
) -> Iterator[tuple[Job, Any]]:
    """Yields each job with what function(*job) returns, or Failed, as they come; nothing any more once time is up.

    Args:
        function: of a module, so that other processes can import it.
        jobs: arguments.
        n_processes: most processes at once.
        limit_s: seconds that one job may take.
        ends: when time is up, on the clock of time.monotonic.
    """
    waiting, processes = iter(jobs), [_Process(function, limit_s) for _ in range(n_processes)]
    try:
        while time.monotonic() < ends:
            for process in processes:
                if not process.job and (job := next(waiting, None)):
                    process.begin(job)
            busy = {process.connection: process for process in processes if process.job}
            if not busy:
                return
            until = min(ends, *(process.until for process in busy.values()))
            wait(busy, max(0.0, until - time.monotonic()))
            yield from (found for process in busy.values() if time.monotonic() < ends and (found := process.answer()))
    finally:
        for process in processes:
            process.end()


class _Process:
    """A process that does one job after another, and is replaced when it fails."""

    def __init__(self, function: Callable[..., Any], limit_s: float) -> None:
        self._function, self._limit_s = function, limit_s
        self._process: Any = None
        self.job: Job | None = None
        self.until = 0.0
        self.connection: Any = None

    def begin(self, job: Job) -> None:
        """Starts a job."""
        limit = self._limit_s
        if self._process is None:
            context, limit = multiprocessing.get_context("spawn"), START_S
            self.connection, theirs = context.Pipe()
            self._process = context.Process(target=_serve, args=(theirs, self._function), daemon=True)
            self._process.start()
            theirs.close()
        self.job, self.until = job, time.monotonic() + limit
        self.connection.send(job)

    def answer(self) -> tuple[Job, Any] | None:
        """Returns the job and its answer; None if that is still awaited."""
        job, found = self.job, self._received()
        if found is None:
            return None
        self.job = None
        assert job is not None
        return job, found

    def _received(self) -> Any:
        if not self.connection.poll():
            if time.monotonic() < self.until:
                return None
            self.end()
            return Failed(f"no answer in {self._limit_s:g} s")
        try:
            kind, found = self.connection.recv()
        except (EOFError, OSError):
            self._process.join(KILL_S)
            code = self._process.exitcode
            self.end()
            if code is None:
                return Failed("the process closed its connection and does not end")
            return Failed(f"the process ended by {f'signal {-code}' if code < 0 else f'exit code {code}'}")
        if kind == "ready":
            self.until = time.monotonic() + self._limit_s
            return None
        if kind == "broken":
            self.end()
        return found

    def end(self) -> None:
        """Stops the process, whatever it does."""
        if self._process is not None:
            self._process.kill()
            self._process.join(KILL_S)
            self.connection.close()
            self._process = None


def _serve(connection: Connection, function: Callable[..., Any]) -> None:
    """Answers jobs. After an error that is not this package's own the device may be unusable, so the process is given up."""
    logging.getLogger("portable_softmax").setLevel(logging.ERROR)  # slow launches are what jobs are about
    connection.send(("ready", None))
    while True:
        job = connection.recv()
        try:
            connection.send(("answer", function(*job)))
        except PortableSoftmaxError as error:
            connection.send(("answer", Failed(_line_of(error))))
        except Exception as error:
            connection.send(("broken", Failed(_line_of(error))))


def _line_of(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
