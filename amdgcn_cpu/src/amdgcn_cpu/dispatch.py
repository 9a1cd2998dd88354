"""Launches: programs are workgroups of waves, which run one at a time, in an order that a seed chooses.

Registers at entry follow "Initial Kernel Execution State" in LLVM's "User Guide for AMDGPU Backend".
"""

import math
import random
from collections.abc import Callable, Iterable, Sequence

import numpy as np

from amdgcn_cpu.arrays import Array
from amdgcn_cpu.faults import Fault, Stuck
from amdgcn_cpu.local import LocalMemory
from amdgcn_cpu.machine import Kernel
from amdgcn_cpu.memory import GlobalMemory
from amdgcn_cpu.scratch import DESCRIPTOR
from amdgcn_cpu.state import TTMP, Wave

_SCRATCH_POINTERS = 2  # pointers, at most, that Triton appends to a kernel's arguments; few kernels use them
_LONGEST_TURN = 48  # instructions, at most, that a wave runs before another one goes on


def launch(
    kernel: Kernel,
    grid: tuple[int, int, int],
    arguments: Sequence[int | float],
    memory: GlobalMemory,
    *,
    num_warps: int,
    shared_bytes: int,
    seed: int = 0,
    resident: int | None = None,
    order: Callable[[Iterable[int]], Iterable[int]] = sorted,
    strict: bool = True,
    most_steps: int = 2_000_000,
) -> int:
    """Runs a kernel and returns the number of instructions that its waves ran.

    Args:
        kernel: the machine code.
        grid: programs along x, y and z.
        arguments: numbers, and addresses from `memory`, in the kernel's order.
        memory: all memory that the kernel may access.
        num_warps: waves of a program.
        shared_bytes: LDS of a program, from the compiled kernel's metadata.
        seed: chooses the interleaving of waves and programs.
        resident: programs that run at once, at most; None is all.
        order: the order in which programs begin, as a permutation of their numbers.
        strict: True refuses reads of LDS that was never written; False reads random ones. A kernel may read such bytes into a
            lane whose value it drops: Triton's kernels do so with masked lanes of an atomic.
        most_steps: instructions of all waves, at most; a launch with more counts as endless.

    Raises:
        Fault: the kernel did something that no correct kernel does; the text ends with the instruction.
        ValueError: the arguments do not fit the kernel.
    """
    arguments_at = memory.register(_argument_memory(kernel, grid, arguments, num_warps))
    local_bytes = max(shared_bytes, kernel.assembly.descriptor["group_segment_fixed_size"])
    chance = random.Random(seed)
    waiting = list(order(range(math.prod(grid))))
    running: list[list[Wave]] = []
    steps = 0
    while waiting or running:
        while waiting and (resident is None or len(running) < resident):
            local = LocalMemory(local_bytes, num_warps, strict, seed)
            running.append(_program(kernel, _place(waiting.pop(0), grid), num_warps, memory, local, arguments_at))
        waves = [wave for program in running for wave in program if not wave.ended]
        ready = [wave for wave in waves if not wave.blocked or wave.local.all_arrived(wave.waits)]
        if not ready or steps > most_steps:
            raise Stuck(f"{len(waves)} waves of {len(running)} programs still run after {steps} instructions")
        with np.errstate(all="ignore"):  # hardware sets overflow and nan too
            steps += _turn(kernel, chance.choice(ready), chance.randint(1, _LONGEST_TURN))
        running = [program for program in running if not all(wave.ended for wave in program)]
    memory.release(arguments_at)
    return steps


def _turn(kernel: Kernel, wave: Wave, count: int) -> int:
    """Runs at most so many instructions of a wave, fewer if it ends or waits; returns how many."""
    steps, done = kernel.steps, 0
    try:
        while done < count and not wave.ended:
            if wave.pc == len(steps):
                raise Fault("the code ends here, and the wave goes on")
            step = steps[wave.pc]
            wave.pc += 1
            step(wave)
            done += 1
            if wave.blocked:
                break
    except Fault as error:
        instruction = kernel.assembly.instructions[wave.pc - 1]
        error.args = (f"{error}: line {instruction.line}: {instruction.text}",)
        raise
    if wave.ended:
        del wave.local.arrived[wave.index]  # no barrier waits for it
    return done


def _argument_memory(kernel: Kernel, grid: tuple[int, int, int], arguments: Sequence[int | float], num_warps: int) -> Array:
    """Returns the kernel's arguments as bytes in memory."""
    sizes = {"group_size_x": num_warps * kernel.assembly.wave_size, "group_size_y": 1, "group_size_z": 1}
    counts = {f"block_count_{axis}": count for axis, count in zip("xyz", grid, strict=True)}
    dimensions = max(axis for axis, count in enumerate(grid, 1) if axis == 1 or count > 1)
    hidden: dict[str, int] = {**sizes, **counts, "grid_dims": dimensions}
    own = [argument for argument in kernel.assembly.arguments if not argument.kind.startswith("hidden_")]
    appended = len(own) - len(arguments)
    if not 0 <= appended <= _SCRATCH_POINTERS:
        raise ValueError(
            f"the kernel has {len(own)} arguments with those that Triton appends, not {len(arguments)} and up to 2"
        )
    values = iter([*arguments, *[0] * appended])
    data = np.zeros(kernel.assembly.descriptor["kernarg_size"], np.uint8)
    for argument in kernel.assembly.arguments:
        is_hidden = argument.kind.startswith("hidden_")
        value = hidden.get(argument.kind.removeprefix("hidden_"), 0) if is_hidden else next(values)
        data[argument.offset : argument.offset + argument.size] = np.frombuffer(_encoded(value, argument.size), np.uint8)
    return data


def _encoded(value: int | float, size: int) -> bytes:
    if isinstance(value, int):
        return (value % (1 << 8 * size)).to_bytes(size, "little")
    if size < 4:
        raise ValueError(f"an argument of {size} bytes is {value}, and the type that the kernel expects is not known")
    return np.array(value, f"f{size}").tobytes()


def _place(number: int, grid: tuple[int, int, int]) -> tuple[int, int, int]:
    return number % grid[0], number // grid[0] % grid[1], number // (grid[0] * grid[1])


def _program(
    kernel: Kernel, place: tuple[int, int, int], num_warps: int, memory: GlobalMemory, local: LocalMemory, arguments_at: int
) -> list[Wave]:
    """Returns the waves of one program, in their state at entry."""
    assembly, descriptor = kernel.assembly, kernel.assembly.descriptor
    scratch = descriptor["private_segment_fixed_size"]
    waves = [Wave(assembly.wave_size, index, memory, local, scratch) for index in range(num_warps)]
    before = {"private_segment_buffer": 4, "dispatch_ptr": 2, "queue_ptr": 2}  # user SGPRs ahead of the arguments' address
    first = sum(count for name, count in before.items() if descriptor.get(f"user_sgpr_{name}"))
    preloaded = descriptor.get("user_sgpr_kernarg_preload_length", 0)
    offset = 4 * descriptor.get("user_sgpr_kernarg_preload_offset", 0)
    system = [number for axis, number in zip("xyz", place, strict=True) if descriptor.get(f"system_sgpr_workgroup_id_{axis}")]
    if descriptor.get("system_sgpr_private_segment_wavefront_offset"):
        system.append(0)  # waves have separate memory
    for wave in waves:
        if descriptor.get("user_sgpr_private_segment_buffer"):
            wave.scalars[:4] = DESCRIPTOR
        wave.scalars[first : first + 2] = [arguments_at & 0xFFFFFFFF, arguments_at >> 32]
        wave.scalars[first + 2 : first + 2 + preloaded] = memory.words(arguments_at + offset, preloaded)
        if assembly.arch.startswith("gfx12"):
            wave.scalars[TTMP + 9], wave.scalars[TTMP + 7] = place[0], place[1] | place[2] << 16
            wave.scalars[TTMP + 8] = wave.index << 25
        else:
            begin = descriptor["user_sgpr_count"]
            wave.scalars[begin : begin + len(system)] = system
    return waves
