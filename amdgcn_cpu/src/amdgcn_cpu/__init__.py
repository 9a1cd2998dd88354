"""Executes the machine code that Triton compiles for AMD, in numpy, on any machine.

Triton's `asm["amdgcn"]` is the text from which the code object is assembled. This package parses that text and executes its
instructions, for gfx9 (waves of 64 lanes), gfx10, gfx11 and gfx12 (waves of 32). It follows AMD's public documents: the
"CDNA3" (MI300), "RDNA2", "RDNA3" and "RDNA4" Instruction Set Architecture reference guides, and LLVM's "User Guide for AMDGPU
Backend" for the descriptor and the state of registers at entry. README.md lists what is exact, what is approximate, and what is
not executed.

    tensors.py     a launch on arrays and tensors; dispatch.py, on memory; machine.py, a kernel's text as functions
    parsing.py     text: instructions, labels, the kernel's descriptor, the layout of its arguments
    state.py       registers of a wave; operands.py, the operands that name them; arrays.py, lanes and masks
    scalar.py      scalar arithmetic, scalar loads, branches, barriers, waits; scalar_table.py, its opcodes
    vector.py      vector arithmetic; vector_table.py, its opcodes; packed.py, packed numbers and mixed precision
    arithmetic.py  floating-point numbers; division.py, the steps of a division; integers.py, integers and bits
    dpp.py         operands read from other lanes; lanes.py, instructions that only read other lanes
    memory.py      global memory, with the bounds of each allocation; access.py, its loads, stores and atomics
    local.py       LDS, with its races; local_access.py, its loads and stores; shapes.py, the parts that both kinds share
    faults.py      errors of a kernel that runs here
    waits.py       waits for loads that the text lacks
"""

from amdgcn_cpu.faults import Fault, MissingWait, OutOfBounds, Race, Stuck, Uninitialised, UnknownInstruction
from amdgcn_cpu.machine import ARCHITECTURES, Kernel
from amdgcn_cpu.memory import GlobalMemory
from amdgcn_cpu.tensors import run

__version__ = "0.1.0"
__all__ = [
    "ARCHITECTURES",
    "Fault",
    "GlobalMemory",
    "Kernel",
    "MissingWait",
    "OutOfBounds",
    "Race",
    "Stuck",
    "Uninitialised",
    "UnknownInstruction",
    "run",
]
