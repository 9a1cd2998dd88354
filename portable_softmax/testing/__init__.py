"""Tests of Triton kernels, of this project and others: a pytest plugin, and assertions about a kernel's resources.

Pytest loads `plugin` by itself. The assertions are `assert_occupancy` and `assert_plan_unchanged`.
"""

from portable_softmax.testing.assertions import assert_occupancy, assert_plan_unchanged

__all__ = ["assert_occupancy", "assert_plan_unchanged"]
