"""Softmax and its gradient of one device's tensors: torch operators, and the way past torch's dispatcher to a kernel.

dispatch.py     a call: repeated, past the dispatcher, or through it
direct.py       past the dispatcher, where nobody but autograd listens; recording.py, as autograd records it
kept.py         the memory of calls, and who listens to a call
compute.py      the softmax and its gradient, by one launch, or by torch on the CPU
layout.py       operands as a kernel takes them: as they lie, or copies
arguments.py    what a caller gives, read as torch reads it, or refused
out.py          the softmax written where a caller wants it; overlap.py tells how that lies to the input
autograd.py     gradients, at the dispatcher's Autograd key
aten.py         kernels for torch's own operators, where override_aten puts them
explained.py    how a call is computed, in words
watched.py      a context that notes a model's calls
library.py      everything else that a dispatcher can ask of the operators

The softmax of scores, which scale, mask, temperature and more make of the input:

scored_dispatch.py   a call: past the dispatcher, or through it
scored_arguments.py  what a caller gives with the input, read, or refused
asked.py             the operators' arguments, by name
scored.py            the softmax of scores and its gradient, by one launch each
composite.py         the same by torch's operators, for tensors on the CPU
scored_autograd.py   gradients, at the dispatcher's Autograd key
scored_library.py    everything else that a dispatcher can ask of these operators
"""

import torch  # noqa: F401 - first, as it imports the operators, which do not find half of one of these modules
