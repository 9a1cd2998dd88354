"""Operators on npu tensors, the whole way; test_softmax.py has more."""

import pytest
from whole_way import *  # noqa: F403

pytestmark = pytest.mark.each_value
