"""Softmax and its gradient of one device's tensors: torch operators, and the way past torch's dispatcher to a kernel.

Each of these imports only those above it:

arguments.py   what a caller gives, read as torch reads it, or refused
call.py        the operators' arguments, by name, and what a launch computes
options.py     scale, mask and the others, read or refused
overlap.py     how a result that a caller gives lies to the input
layout.py      operands as a kernel takes them: as they lie, or copies
composite.py   the same by torch's operators, for tensors on the CPU
memory.py      the memory of calls, and who listens to a call
launching.py   the only place that plans a call: one launch, kept
bypass.py      past the dispatcher, where nobody but autograd listens
autograd.py    gradients, at the dispatcher's Autograd key
library.py     everything else that a dispatcher can ask of the operators
out.py         the softmax written where a caller wants it
aten.py        kernels for torch's own operators, where override_aten puts them
explained.py   how a call is computed, in words
dispatch.py    a call: repeated, past the dispatcher, or through it
"""
