"""Runs the programs of one launch at once in Triton's interpreter, which otherwise runs them one after the other.

Each program is a thread, and only one thread runs at a time. When it reads or writes shared memory, a random thread goes on. So
a seed selects one interleaving of a kernel's own steps, which can be repeated, and programs that wait in vain are detected.
"""

import dataclasses
import functools
import random
import threading
from unittest import mock

import msgspec
import torch
from machines import Machine

from portable_softmax.devices.policy import Polls
from portable_softmax.runtime.interpreted import patched_once
from portable_softmax.runtime.kernel_form import constexprs_of, kernel_of, signature_of
from portable_softmax.runtime.prepared import arranged

MOST_STEPS = 30_000  # steps of all programs of a launch; with more, they wait in vain


def launch(kernel, num_programs, arguments, seed, resident):
    """Launches a kernel as `kernel[grid](**arguments)` does, with its programs in the interleaving of a seed; see at_once."""
    from triton.runtime.interpreter import interpreter_builder as builder

    chosen, back, turns = random.Random(seed), threading.Semaphore(0), [threading.Semaphore(0) for _ in range(num_programs)]
    left, errors, running = chosen.sample(range(num_programs), num_programs), [], 0

    def stepping(access, *arguments):  # another program goes on ahead of an access
        mine = turns[running]
        back.release()
        mine.acquire()
        return access(*arguments)

    def program(index, work):
        turns[index].acquire()
        try:
            work()
        except BaseException as error:  # the launch raises it again
            errors.append(error)
        left.remove(index)
        back.release()

    def grid(converted):  # called with the kernel's arguments; the interpreter would then run its programs one by one
        nonlocal running
        builder.set_grid_dim(num_programs, 1, 1)
        work = functools.partial(kernel.rewrite(), **converted)
        for index in range(num_programs):
            threading.Thread(target=program, args=(index, work), daemon=True).start()
        for _ in range(MOST_STEPS):
            running = chosen.choice(left[:resident])
            builder.set_grid_idx(running, 0, 0)
            turns[running].release()
            back.acquire()
            if errors:
                raise errors[0]
            if not left:
                return (0,)  # no programs are left for the interpreter
        raise TimeoutError(f"{len(left)} programs still wait for each other after {MOST_STEPS} steps")

    accesses = "create_masked_load", "create_masked_store", "create_atomic_rmw"
    steps = {name: functools.partial(stepping, getattr(builder, name)) for name in accesses}
    with patched_once(), mock.patch.multiple(builder, **steps):
        kernel[grid](**arguments)


def at_once(device, seed, polls=3, resident=None):
    """Returns a machine whose programs run at once.

    Args:
        device, seed: the interpreter's; of the order in which programs begin, and of their interleavings.
        polls: how often programs look for words, at most.
        resident: how many programs run at once, at most; the next one begins when one is done. All if it is None.
    """

    def prepare(spec, device, grid, sizes):
        (in_order, fixed), names = arranged(spec, sizes), tuple(signature_of(spec))

        def run(*operands):
            named = dict(zip(names, in_order((*operands, *fixed)), strict=True)) | constexprs_of(spec, device)
            launch(kernel_of(spec), grid[0], named, seed, resident)

        return run

    policy = msgspec.structs.replace(device.profile.launch, polls=Polls(polls, "a test"))
    device = dataclasses.replace(device, profile=msgspec.structs.replace(device.profile, launch=policy))
    return Machine(device, torch.device("cpu"), prepare=prepare)
