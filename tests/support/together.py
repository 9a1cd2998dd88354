"""Runs the programs of one launch at once in Triton's interpreter, which otherwise runs them one after the other.

Each program is a thread, and only one thread runs at a time. When it reads or writes memory, a random thread goes on. So a seed
selects one interleaving of a kernel's own steps, which can be repeated, and programs that wait in vain are detected.
"""

import dataclasses
import functools
import random
import threading
from unittest import mock

import msgspec
import torch
from machines import Machine

from portable_softmax.devices.schema import Polls
from portable_softmax.runtime.interpreted import interpreted

MOST_STEPS = 30_000  # steps of all programs of a launch; with more, they wait in vain
ACCESSES = "create_masked_load", "create_masked_store", "create_atomic_rmw"


def run(program, number, seed, resident):
    """Runs a number of programs in the interleaving of a seed; see at_once."""
    from triton.runtime.interpreter import interpreter_builder as builder

    chosen, back, turns = random.Random(seed), threading.Semaphore(0), [threading.Semaphore(0) for _ in range(number)]
    left, errors, running = chosen.sample(range(number), number), [], 0

    def step(access, *arguments):  # another program goes on ahead of an access
        mine = turns[running]
        back.release()
        mine.acquire()
        return access(*arguments)

    def thread(index):
        turns[index].acquire()
        try:
            program()
        except BaseException as error:  # the launch raises it again
            errors.append(error)
        left.remove(index)
        back.release()

    with mock.patch.multiple(builder, **{name: functools.partial(step, getattr(builder, name)) for name in ACCESSES}):
        builder.set_grid_dim(number, 1, 1)
        for index in range(number):
            threading.Thread(target=thread, args=(index,), daemon=True).start()
        for _ in range(MOST_STEPS):
            running = chosen.choice(left[:resident])
            builder.set_grid_idx(running, 0, 0)
            turns[running].release()
            back.acquire()
            if errors:
                raise errors[0]
            if not left:
                return
        raise TimeoutError(f"{len(left)} programs still wait for each other after {MOST_STEPS} steps")


def at_once(device, seed, polls=3, resident=None):
    """Returns a machine whose programs run at once.

    Args:
        device, seed: the interpreter's; of the order in which programs begin, and of their interleavings.
        polls: how often programs look for words, at most.
        resident: how many programs run at once, at most; the next one begins when one is done. All if it is None.
    """

    def run_of(kernel, device, grid):
        def programs(arguments):  # in place of a grid; the interpreter is left with none
            run(functools.partial(kernel.function.rewrite(), **arguments), grid[0], seed, resident)
            return (0,)

        return interpreted(kernel, programs)

    policy = msgspec.structs.replace(device.profile.launch, polls=Polls(polls, "a test"))
    device = dataclasses.replace(device, profile=msgspec.structs.replace(device.profile, launch=policy))
    return Machine(device, torch.device("cpu"), run_of=run_of)
