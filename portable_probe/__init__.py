"""Explains a device: its facts and where they come from, a plan and its reasons, and what any kernel uses of it."""

from portable_probe.inspection import Inspected, inspect_kernel

__all__ = ["Inspected", "inspect_kernel"]
