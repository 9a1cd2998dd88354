"""Triton kernels of anybody: what they use, how many of their programs are resident, and which configurations fit a device."""
