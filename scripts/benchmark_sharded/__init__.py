"""Benchmark of a softmax over a sharded dimension, on torch.distributed.

__main__.py    options, the sequence of measurements, and runs in which ranks come late
providers.py   log_softmax of a sharded matrix, by this package and by torch, and the timed calls
checks.py      checks of every result against float64
timing.py      the time of a call on the slowest rank
kernels.py     kernels and collectives by themselves
tables.py      the printed tables
"""
