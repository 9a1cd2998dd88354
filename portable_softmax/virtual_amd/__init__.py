"""A virtual AMD device: runs the machine code that Triton compiles for one, in numpy, on any machine.

Triton's `asm["amdgcn"]` is the text that the code object is assembled from. This room reads that text and does what each
instruction does, for gfx9 (waves of 64 lanes), gfx10, gfx11 and gfx12 (waves of 32), after AMD's public documents: the
"CDNA3" (MI300), "RDNA2", "RDNA3" and "RDNA4" Instruction Set Architecture reference guides, and LLVM's "User Guide for AMDGPU
Backend" for the descriptor and the state of registers at entry.

    parsing.py     text: instructions, labels, the kernel's descriptor, the layout of its arguments
    state.py       registers of a wave; operands.py, the operands that name them; arrays.py, lanes and masks
    scalar.py      scalar arithmetic, scalar loads, branches, barriers, waits; scalar_table.py, its opcodes
    vector.py      vector arithmetic; vector_table.py, its opcodes; packed.py, two numbers at once and mixed precision
    arithmetic.py  floating-point numbers; division.py, the steps of a division; integers.py, integers and bits
    dpp.py         operands read from other lanes; lanes.py, instructions that do nothing else
    memory.py      global memory, with the bounds of each allocation; access.py, its loads, stores and atomics
    local.py       LDS, with its races; local_access.py, its loads and stores; shapes.py, what both kinds of access share
    machine.py     a kernel's text as functions; dispatch.py, its launch; run.py, that on tensors
    faults.py      errors of a kernel that runs here
    waits.py       waits for loads that the text lacks

It is imported only by those who ask for it, and needs numpy and nothing else of this package but its errors.

Idealised: v_exp, v_log, v_rcp, v_rsq and v_sqrt of float32 round correctly, where hardware is within 1 unit in the last place
(v_rcp_f64 is as inexact as hardware, in half of its digits); a fused multiply-add of float64 may be off in the last bit; global
memory has no caches, so all programs see each write at once, and cache modifiers are checked but change nothing; a result is
there when its instruction is done. So a wait for a load that is missing changes no number here: it is looked for in the text,
on all paths, before anything runs. Other waits are not (s_nop, s_delay_alu, those for stores to global memory); there is no
time. Not known here: matrix instructions, scratch memory, images. An instruction or a modifier that is not known is an error
with its line, before anything runs.
"""
