"""Operators on tensors of Intel's GPUs, the whole way."""

import pytest
from whole_way import *  # noqa: F403

pytestmark = pytest.mark.pairwise
