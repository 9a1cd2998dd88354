"""Loops in machine code: the instructions of a warp, and loads that wait for one another.

Assemblers may move a load behind the arithmetic on the one before it, to save registers, and they unroll loops. Neither is in
any IR of Triton.
"""

from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple


class Instruction(NamedTuple):
    """What an instruction means to loops and loads."""

    target: int | None = None  # index of the instruction that a branch continues at
    ends: bool = False  # the program never gets behind it; a cubin may end in a branch to itself
    loads: bool = False  # from global memory
    counter: int | None = None  # that a load into registers, or on some devices a store, holds until it is done
    waits: tuple[int, ...] = ()  # counters that it waits for
    left: int = 0  # operations of these that need not be done, the latest ones
    clocks: int = 1  # in which a partition of a multiprocessor issues it


class Loop(NamedTuple):
    """Machine code of a loop without its inner loops, or of a program outside loops."""

    depth: int  # number of loops around it, with itself
    clocks: float  # in which a partition of a multiprocessor issues the instructions of a warp, per iteration
    loads: float  # from global memory
    chained: float  # loads of the longest chain, in which each begins after another was waited for


def loop_of(depth: int, instructions: Sequence[Instruction]) -> Loop:
    """Returns the loop of these instructions."""
    pending, waited, chained = defaultdict[int, list[int]](list), 0, 0  # by counter: loads of the chain up to an operation
    for one in instructions:
        for counter in one.waits:
            queue = pending[counter]
            done = queue[: max(0, len(queue) - one.left)]
            waited = max([waited, *done])
            pending[counter] = queue[len(done) :]
        if one.counter is not None:
            pending[one.counter].append(waited + 1 if one.loads else 0)
            chained = max(chained, pending[one.counter][-1])
    return Loop(depth, sum(one.clocks for one in instructions), sum(one.loads for one in instructions), chained)
