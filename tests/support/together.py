"""Runs the programs of one launch at once in Triton's interpreter, which otherwise runs them one after the other.

Each program is a thread, and only one thread runs at a time. When it reads or writes shared memory, a random thread goes on. So
a seed gives one interleaving of a kernel's own steps, which can be repeated, and programs that wait in vain are found.
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


class _Program:
    def __init__(self, index, work, back):
        self.index, self.turn, self.error, self.done = index, threading.Semaphore(0), None, False
        threading.Thread(target=self._run, args=(work, back), daemon=True).start()

    def _run(self, work, back):
        self.turn.acquire()
        try:
            work()
        except BaseException as error:  # the launch raises it again
            self.error = error
        self.done = True
        back.release()


class Together:
    """Launches kernels as `kernel[grid]` does, in the interleavings of a seed.

    Args:
        resident: programs that run at once, at most; the next begins when one is done. None is all.
        order: returns the numbers of programs in the order in which they begin.
    """

    def __init__(self, seed, resident=None, order=sorted):
        self.random, self.back = random.Random(seed), threading.Semaphore(0)
        self.resident, self.order, self.running, self.stopped = resident, order, None, False

    def launch(self, kernel, num_programs, **arguments):
        from triton.runtime.interpreter import interpreter_builder as builder

        def grid(converted):  # called with the kernel's arguments; the interpreter would then run its programs one by one
            builder.set_grid_dim(num_programs, 1, 1)
            work = functools.partial(kernel.rewrite(), **converted)
            self._run([_Program(index, work, self.back) for index in self.order(range(num_programs))], builder)
            return (0,)  # no programs are left for the interpreter

        names = ("create_masked_load", "create_masked_store", "create_atomic_rmw")
        steps = {name: self._stepping(getattr(builder, name), name == "create_masked_load") for name in names}
        with patched_once(), mock.patch.multiple(builder, **steps):
            kernel[grid](**arguments)

    def _run(self, programs, builder):
        left, steps, self.stopped = list(programs), 0, False
        while left:
            steps += 1
            self.stopped = self.stopped or steps > MOST_STEPS
            self.running = self.random.choice(left[: self.resident])
            builder.set_grid_idx(self.running.index, 0, 0)
            self.running.turn.release()
            self.back.acquire()
            if self.running.done:
                left.remove(self.running)
                self.stopped = self.stopped or self.running.error is not None
        for program in programs:
            if program.error and not isinstance(program.error, _Stopped):
                raise program.error
        if self.stopped:
            raise TimeoutError(f"{len(programs)} programs still wait for each other after {MOST_STEPS} steps")

    def _step(self):
        """Ends a step of the running program: another one goes on."""
        mine = self.running
        self.back.release()
        mine.turn.acquire()
        if self.stopped:
            raise _Stopped

    def _stepping(self, access, only_volatile):
        """Makes an access a step of its own: a store, an atomic operation, or a load that is volatile."""

        def stepping(*arguments):
            if only_volatile and not arguments[-1]:
                return access(*arguments)
            self._step()
            result = access(*arguments)
            self._step()
            return result

        return stepping


def at_once(device, seed, polls=3, left=lambda words, number: None, **order):
    """Returns a machine whose programs run at once; see Together.

    Args:
        device, seed, order: the interpreter's; of the interleavings; which programs run at once.
        polls: how often programs look for words, at most.
        left: fills a launch's words, of the number of the launch, ahead of it.
    """

    def prepare(spec, device, grid, sizes):
        (in_order, fixed), names = arranged(spec, sizes), tuple(signature_of(spec))

        def launch(*operands):
            if spec.exchanges:
                left(*operands[-2:])
            named = dict(zip(names, in_order((*operands, *fixed)), strict=True)) | constexprs_of(spec, device)
            Together(seed, **order).launch(kernel_of(spec), grid[0], **named)

        return launch

    policy = msgspec.structs.replace(device.profile.launch, polls=Polls(polls, "a test"))
    device = dataclasses.replace(device, profile=msgspec.structs.replace(device.profile, launch=policy))
    return Machine(device, torch.device("cpu"), prepare=prepare)
