"""Tests of Triton kernels, of this project and others: a pytest plugin, and assertions about a kernel's resources.

`pytest_plugins = ["portable_probe.testing"]` in a conftest.py, or `-p portable_probe.testing`, loads the plugin. The
assertions are `assert_occupancy` and `assert_plan_unchanged`, for any runner of tests: where nothing can be compiled they raise
unittest.SkipTest.
"""

from importlib.util import find_spec

from portable_probe.testing.assertions import assert_occupancy, assert_plan_unchanged

if find_spec("pytest"):  # the assertions need none
    from portable_probe.testing.plugin import (  # noqa: F401 (fixtures and hooks, which pytest finds here)
        portable_device,
        portable_torch_device,
        pytest_addoption,
        pytest_collection_modifyitems,
        pytest_configure,
        pytest_generate_tests,
        pytest_report_header,
        pytest_runtest_setup,
        pytest_runtest_teardown,
        pytest_sessionstart,
    )

__all__ = ["assert_occupancy", "assert_plan_unchanged"]
