"""A virtual AMD device: it runs the machine code that Triton compiles for AMD, in numpy, on any machine.

Triton's `asm["amdgcn"]` is the text from which the code object is assembled. This room reads that text and does what each
instruction does, for gfx9 (waves of 64 lanes), gfx10, gfx11 and gfx12 (waves of 32). It follows AMD's public documents: the
"CDNA3" (MI300), "RDNA2", "RDNA3" and "RDNA4" Instruction Set Architecture reference guides, and LLVM's "User Guide for AMDGPU
Backend" for the descriptor and the state of registers at entry.

    parsing.py     text: instructions, labels, the kernel's descriptor, the layout of its arguments
    state.py       registers of a wave; operands.py, the operands that name them; arrays.py, lanes and masks
    scalar.py      scalar arithmetic, scalar loads, branches, barriers, waits; scalar_table.py, its opcodes
    vector.py      vector arithmetic; vector_table.py, its opcodes; packed.py, packed numbers and mixed precision
    arithmetic.py  floating-point numbers; division.py, the steps of a division; integers.py, integers and bits
    dpp.py         operands read from other lanes; lanes.py, instructions that only read other lanes
    memory.py      global memory, with the bounds of each allocation; access.py, its loads, stores and atomics
    local.py       LDS, with its races; local_access.py, its loads and stores; shapes.py, the parts that both kinds share
    machine.py     a kernel's text as functions; dispatch.py, its launch; run.py, its launch on tensors
    faults.py      errors of a kernel that runs here
    waits.py       waits for loads that the text lacks

Only its users import it. It needs numpy, and from this package only the errors.

The model is ideal in some ways. v_exp, v_log, v_rcp, v_rsq and v_sqrt of float32 round correctly, while hardware is within 1
unit in the last place; v_rcp_f64 is exact in half of its digits, like hardware. A fused multiply-add of float64 may be off in
the last bit. Global memory has no caches: all programs see each write at once, and cache modifiers are checked but change
nothing. There is no time: a result is there when its instruction is done. So a missing wait for a load changes no number here;
waits.py looks for it in the text, on all paths, before anything runs. Other waits are not checked (s_nop, s_delay_alu, waits
for stores to global memory). Matrix instructions, scratch memory and images are not known. An unknown instruction or modifier
is an error that gives its line, before anything runs.
"""
