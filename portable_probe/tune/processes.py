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


def answers(
    function: Callable[..., Any], jobs: Iterable[Job], n_processes: int, limit_s: float, ends: float
) -> Iterator[tuple[Job, Any]]:
    """Yields each job with what function(*job) returns, or Failed, as they come; nothing any more once time is up.

    Args:
        function: of a module, so that other processes can import it; jobs are its arguments.
        jobs, n_processes, limit_s: what to do, in how many processes at most, each job in so many seconds.
        ends: when time is up, on the clock of time.monotonic.
    """
    waiting, processes = iter(jobs), [_Process(function, limit_s) for _ in range(n_processes)]
    try:
        while time.monotonic() < ends:
            busy = [each for each in processes if each.job or each.begin(next(waiting, None))]
            if not busy:
                return
            until = min(ends, *(each.until for each in busy))
            wait([each.connection for each in busy], max(0.0, until - time.monotonic()))
            yield from (found for each in busy if time.monotonic() < ends and (found := each.answer()))
    finally:
        for each in processes:
            each.end()


class _Process:
    """A process that does one job after another, and is replaced when it fails."""

    def __init__(self, function: Callable[..., Any], limit_s: float) -> None:
        self._function, self._limit_s, self.until = function, limit_s, 0.0
        self._process: Any = None
        self.connection: Any = None
        self.job: Job | None = None

    def begin(self, job: Job | None) -> bool:
        """Starts a job; False if there is none."""
        if not job:
            return False
        self.job, self.until = job, time.monotonic() + (self._limit_s if self._process else START_S)
        if not self._process:
            context = multiprocessing.get_context("spawn")
            self.connection, theirs = context.Pipe()
            self._process = context.Process(target=_serve, args=(theirs, self._function), daemon=True)
            self._process.start()
            theirs.close()
        self.connection.send(job)
        return True

    def answer(self) -> tuple[Job, Any] | None:
        """Returns the job and its answer; None if that is still awaited."""
        job, kind, found = self.job, "", None
        if self.connection.poll():
            try:
                kind, found = self.connection.recv()
            except (EOFError, OSError):
                self._process.join(KILL_S)
                code = self._process.exitcode or 0
                kind, found = "broken", Failed(f"the process ended by {f'signal {-code}' if code < 0 else f'exit code {code}'}")
        elif time.monotonic() >= self.until:
            kind, found = "broken", Failed(f"no answer in {self._limit_s:g} s")
        if kind == "broken":
            self.end()
        if kind == "ready":
            self.until = time.monotonic() + self._limit_s
        if not job or kind in ("", "ready"):
            return None
        self.job = None
        return job, found

    def end(self) -> None:
        """Stops the process, whatever it does."""
        if self._process:
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
        except Exception as error:
            failed = Failed(f"{type(error).__name__}: {' '.join(str(error).split())[:300]}")
            connection.send(("answer" if isinstance(error, PortableSoftmaxError) else "broken", failed))
