"""Compiled kernels and their launches on the active stream."""
