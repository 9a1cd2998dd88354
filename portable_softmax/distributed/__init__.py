"""Softmax of rows that are sharded over devices, on torch.distributed.

Operators are imported with torch; the rest, and torch.distributed, when a group or a DTensor is first given.

entry.py        arguments, and the autograd function: reduce, exchange, map
dtensor.py      the same for a DTensor, and sharding rules of the package's operators
exchange.py     collectives that make numbers of whole rows of those of shards
operators.py    both steps on one device as torch operators, opaque to compilers
steps.py        both steps by a kernel, or by torch on the CPU
"""

import torch  # noqa: F401 - first, as in operators
