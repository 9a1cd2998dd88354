"""A tuning run: plans cells with varied numbers, times the launches that differ, chooses rows, and times what they give."""

import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from portable_probe.tune.cells import Cell, problem_on
from portable_probe.tune.choice import COMPUTED, Measured, chosen_rows
from portable_probe.tune.measuring import Launch, Timing, planned, timed
from portable_probe.tune.processes import Failed, Job, answers
from portable_probe.tune.variations import Variation, first_launches, row_of, variations, with_rows, words_of
from portable_softmax.devices.device import Device
from portable_softmax.devices.policy import NumberRow
from portable_softmax.planning.numbers import load_of, numbers_of
from portable_softmax.planning.problem import Problem
from portable_softmax.planning.reading import as_read

PLAN_SHARE, TIME_SHARE = 0.45, 0.88  # of the minutes, until which plans and times are made; the rest is for what was chosen
CHOSEN = "chosen"  # stands for a variation, of launches that only all rows together give


@dataclass(frozen=True)
class Limits:
    """Seconds that a plan and a time may take, and the most processes that plan at once."""

    plan_s: float = 60
    time_s: float = 30
    processes: int = max(1, (os.cpu_count() or 2) - 1)


DEFAULT = Limits()


@dataclass(frozen=True)
class Failure:
    """A plan or a launch that crashed, hung, failed or was wrong."""

    cell: Cell
    words: str
    launch: Launch | None
    reason: str

    def __str__(self) -> str:
        return f"{self.cell}, {self.words}{f', {self.launch}' if self.launch else ''}: {self.reason}"


@dataclass
class Run:
    """The state of a run: what was planned and timed so far.

    Args:
        device: the device that is here.
        cells: what is timed.
        source: name of the source of the rows that are chosen.
        limits: of jobs.
        plan, time: the jobs, measuring.planned and measuring.timed; tests give others.
    """

    device: Device
    cells: Sequence[Cell]
    source: str
    limits: Limits = DEFAULT
    plan: Callable[..., Launch] = planned
    time: Callable[..., Timing] = timed
    plans: dict[Cell, dict[Variation, Launch]] = field(default_factory=dict)
    times: dict[tuple[Cell, Launch], Timing] = field(default_factory=dict)
    again: dict[Cell, Timing] = field(default_factory=dict)
    after: dict[Cell, Launch] = field(default_factory=dict)
    rows: list[NumberRow] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)

    def tune(self, minutes: float) -> None:
        """Does all of it in so many minutes."""
        began = time.monotonic()
        self._plan_all(began + 60 * PLAN_SHARE * minutes)
        self._time_all(began + 60 * TIME_SHARE * minutes)
        self.rows = chosen_rows(self.measured(), self.source)
        self._confirm(began + 60 * minutes)

    def _plan_all(self, ends: float) -> None:
        """Plans each cell with each variation that changes its first candidates."""
        self.plans = {cell: {} for cell in self.cells}
        alike: dict[Job, list[Variation]] = {}
        first: dict[tuple[Cell, Any], Job] = {}
        for variation in (COMPUTED, *variations(self.device)):
            rows = row_of(variation)
            varied = with_rows(self.device, rows)
            for cell in self.cells:
                job = first.setdefault((cell, first_launches(self._problem(cell), varied)), (cell, rows))
                alike.setdefault(job, []).append(variation)
        for job, found in self._answers("plans", list(alike), ends):
            if isinstance(found, Failed):
                self.failures.append(Failure(job[0], words_of(alike[job][0]), None, found.reason))
            else:
                self.plans[job[0]] |= dict.fromkeys(alike[job], found)

    def _time_all(self, ends: float) -> None:
        """Times each launch once: of all cells the computed one, once more, then the others."""
        computed = {cell: found[COMPUTED] for cell, found in self.plans.items() if COMPUTED in found}
        tried = [COMPUTED, *variations(self.device)]
        others = dict.fromkeys(
            (cell, self.plans[cell][each]) for each in tried for cell in computed if each in self.plans[cell]
        )
        jobs = [*((*each, True) for each in computed.items()), *((*each, False) for each in computed.items())]
        jobs += [(*each, False) for each in others if each not in computed.items()]
        self._timed("times", jobs, ends)

    def _timed(self, name: str, jobs: list[Job], ends: float) -> None:
        for (cell, launch, _), found in self._answers(name, jobs, ends):
            if isinstance(found, Failed):
                self.failures.append(Failure(cell, self.words(cell, launch), launch, found.reason))
                self.times.pop((cell, launch), None)
            elif (cell, launch) in self.times:
                self.again[cell] = found
            else:
                self.times[cell, launch] = found

    def _confirm(self, ends: float) -> None:
        """Plans and times each cell with all rows; where a launch fails, the rows that led to it are dropped."""
        while True:
            rows = tuple(self.rows)
            n_failures = len(self.failures)
            jobs = [(cell, rows) for cell in self._complete()]
            self.after = {}
            for (cell, _), found in self._answers("plans of all rows", jobs, ends):
                if isinstance(found, Failed):
                    self.failures.append(Failure(cell, CHOSEN, None, found.reason))
                else:
                    self.after[cell] = found
            missing = [(cell, each, False) for cell, each in self.after.items() if (cell, each) not in self.times]
            self._timed("times of all rows", missing, ends)
            failed = {each.cell for each in self.failures[n_failures:]}
            failed |= {cell for cell, launch in self.after.items() if self.failed(cell, launch)}
            wrong = [row for row in rows if any(row in self._rows_for(cell) for cell in failed)]
            if not wrong:
                return
            self.rows = [row for row in rows if row not in wrong]

    def measured(self) -> list[Measured]:
        """Returns the times of the cells that are not held out."""
        return [self._measured(cell) for cell in self._complete() if not cell.held_out]

    def _measured(self, cell: Cell) -> Measured:
        found = {variation: self.times.get((cell, launch)) for variation, launch in self.plans[cell].items()}
        problem = self._problem(cell)
        return Measured(
            given=problem,
            read=as_read(problem, self.device),
            load=load_of(problem, self.device),
            us={variation: timing.us for variation, timing in found.items() if timing},
            again_us=self.again[cell].us,
        )

    def failed(self, cell: Cell, launch: Any) -> bool:
        """Tells whether a launch crashed, hung or was wrong."""
        return any((each.cell, each.launch) == (cell, launch) for each in self.failures)

    def words(self, cell: Cell, launch: Launch) -> str:
        """Names a launch by the first variation that gives it."""
        return next((words_of(each) for each, found in self.plans[cell].items() if found == launch), CHOSEN)

    def _rows_for(self, cell: Cell) -> list[NumberRow]:
        tuned, problem = with_rows(self.device, tuple(self.rows)), self._problem(cell)
        return [*numbers_of(problem, tuned)[1], *numbers_of(as_read(problem, tuned), tuned)[1]]

    def _complete(self) -> list[Cell]:
        """Returns the cells whose computed launch was timed twice."""
        return [cell for cell in self.cells if (cell, self.plans[cell].get(COMPUTED)) in self.times and cell in self.again]

    def _problem(self, cell: Cell) -> Problem:
        problem = problem_on(cell, self.device)
        assert problem, "cells_of leaves out what the device does not take"
        return problem

    def _answers(self, name: str, jobs: Sequence[Job], ends: float) -> Iterator[tuple[Job, Any]]:
        """Yields answers, and shows how many there are and the time left, which ends when time is up."""
        from tqdm import tqdm  # here, as what checks a run's files draws no bar

        is_time = name.startswith("times")
        wanted = (job for job in jobs if not self.failed(*job[:2]))  # asked when its turn comes: no launch fails twice
        n_processes = 1 if is_time else min(self.limits.processes, len(jobs))
        limit_s = self.limits.time_s if is_time else self.limits.plan_s
        left = f"{name}, at most {max(0.0, ends - time.monotonic()) / 60:.1f} min"
        with tqdm(total=len(jobs), desc=left, disable=not jobs, mininterval=1) as bar:
            for job, found in answers(self.time if is_time else self.plan, wanted, n_processes, limit_s, ends):
                bar.update()
                if isinstance(found, Failed):
                    bar.write(f"{job[0]}: {found.reason}", file=sys.stderr)
                yield job, found
