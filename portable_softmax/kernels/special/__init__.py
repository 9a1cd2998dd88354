"""Kernels for special rows: pairs of short ones, and shards of long ones."""
