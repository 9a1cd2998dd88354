"""Benchmark of a softmax over a sharded dimension, on torch.distributed.

__main__.py    options, the order of things, and runs in which ranks come late
providers.py   ours and torch's log_softmax of a sharded matrix, and what is called of each
checks.py      every result against float64
timing.py      the time of a call on the slowest rank
kernels.py     kernels and collectives by themselves, and tiles of other sizes
tables.py      what is printed
cost.py        the cost at more ranks, on paper
"""
