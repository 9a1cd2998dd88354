"""A pytest plugin for tests of Triton kernels, and an assertion about a kernel's occupancy.

The plugin is an entry point of pytest; `-p no:portable_probe.testing` disables it. `assert_occupancy` works with any test
runner: if nothing can be compiled it raises unittest.SkipTest.
"""

from importlib.util import find_spec

from portable_probe.testing.assertions import assert_occupancy

if find_spec("pytest"):  # the assertion does not require it
    from portable_probe.testing.plugin import *  # noqa: F403 (fixtures and hooks, which pytest finds here)

__all__ = ["assert_occupancy"]
