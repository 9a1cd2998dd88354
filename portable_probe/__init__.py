"""Explains a device: its facts and where they come from, a plan and its reasons, and what any kernel uses of it."""
