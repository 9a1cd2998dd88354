"""Tests of Triton kernels, of this project and others: a pytest plugin, and an assertion about a kernel's resources.

`pytest_plugins = ["portable_probe.testing"]` in a conftest.py, or `-p portable_probe.testing`, loads the plugin.
`assert_occupancy` is for any runner of tests: where nothing can be compiled it raises unittest.SkipTest.
"""

from importlib.util import find_spec

from portable_probe.testing.assertions import assert_occupancy

if find_spec("pytest"):  # the assertion needs none
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

__all__ = ["assert_occupancy"]
