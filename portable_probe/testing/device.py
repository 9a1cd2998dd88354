"""A pytest plugin that adds --device, an option that many test suites have: `-p portable_probe.testing.device`."""

import pytest

from portable_softmax.devices.backends import BACKENDS


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds --device, which is --on for a backend."""
    group, choices = parser.getgroup("portable-softmax"), ("auto", *BACKENDS)
    group.addoption("--device", dest="portable_device", choices=choices, default="auto", help="what runs kernels (auto)")
