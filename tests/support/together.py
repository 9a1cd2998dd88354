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

MOST_STEPS = 3000  # steps of all programs of a launch; with more, they wait in vain


class _Stopped(BaseException):
    """Ends a program's thread; nothing catches it on its way."""


def launch(kernel, num_programs, arguments, seed, resident=None, order=sorted):
    """Launches a kernel as `kernel[grid](**arguments)` does, with its programs in the interleaving of a seed; see at_once."""
    from triton.runtime.interpreter import interpreter_builder as builder

    chosen, back, turns = random.Random(seed), threading.Semaphore(0), [threading.Semaphore(0) for _ in range(num_programs)]
    left, errors, running, stopped = [*order(range(num_programs))], [], 0, False

    def step():  # ends a step of the running program: another one goes on
        mine = turns[running]
        back.release()
        mine.acquire()
        if stopped:
            raise _Stopped

    def stepping(access, *arguments, only_volatile=False):  # an access is a step of its own
        if only_volatile and not arguments[-1]:
            return access(*arguments)
        step()
        result = access(*arguments)
        step()
        return result

    def program(index, work):
        turns[index].acquire()
        try:
            work()
        except _Stopped:
            pass
        except BaseException as error:  # the launch raises it again
            errors.append(error)
        left.remove(index)
        back.release()

    def grid(converted):  # called with the kernel's arguments; the interpreter would then run its programs one by one
        nonlocal running, stopped
        builder.set_grid_dim(num_programs, 1, 1)
        work, steps = functools.partial(kernel.rewrite(), **converted), 0
        for index in range(num_programs):
            threading.Thread(target=program, args=(index, work), daemon=True).start()
        while left:
            steps += 1
            stopped = bool(errors) or steps > MOST_STEPS
            running = chosen.choice(left[:resident])
            builder.set_grid_idx(running, 0, 0)
            turns[running].release()
            back.acquire()
        if errors:
            raise errors[0]
        if stopped:
            raise TimeoutError(f"{num_programs} programs still wait for each other after {MOST_STEPS} steps")
        return (0,)  # no programs are left for the interpreter

    steps = {name: functools.partial(stepping, getattr(builder, name)) for name in ("create_masked_store", "create_atomic_rmw")}
    steps["create_masked_load"] = functools.partial(stepping, builder.create_masked_load, only_volatile=True)
    with patched_once(), mock.patch.multiple(builder, **steps):
        kernel[grid](**arguments)


def at_once(device, seed, polls=3, left=lambda words, number: None, **order):
    """Returns a machine whose programs run at once.

    Args:
        device, seed: the interpreter's; of the interleavings.
        polls: how often programs look for words, at most.
        left: fills a launch's words, of the number of the launch, ahead of it.
        order: `resident` programs run at once, at most, and the next begins when one is done: all if it is None. `order`
            returns the numbers of programs in the order in which they begin.
    """

    def prepare(spec, device, grid, sizes):
        (in_order, fixed), names = arranged(spec, sizes), tuple(signature_of(spec))

        def run(*operands):
            if spec.exchanges:
                left(*operands[-2:])
            named = dict(zip(names, in_order((*operands, *fixed)), strict=True)) | constexprs_of(spec, device)
            launch(kernel_of(spec), grid[0], named, seed, **order)

        return run

    policy = msgspec.structs.replace(device.profile.launch, polls=Polls(polls, "a test"))
    device = dataclasses.replace(device, profile=msgspec.structs.replace(device.profile, launch=policy))
    return Machine(device, torch.device("cpu"), prepare=prepare)
