"""The interpreter computes in threads."""

import sys
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest
import torch
from closeness import assert_close, expected

from portable_softmax import softmax

pytestmark = pytest.mark.kernel
DTYPES = torch.float16, torch.bfloat16, torch.float32


def test_first_calls_of_many_threads(where):
    """Each of another shape and type, so that each plans, compiles and launches; threads change in the middle of all of it."""
    barrier = Barrier(8, timeout=60)

    def call(number):
        x = torch.randn(3, 901 + number, generator=torch.Generator().manual_seed(number)).to(where, DTYPES[number % 3])
        barrier.wait()
        for _ in range(4):
            assert_close(softmax(x, -1), expected("softmax", x))

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(call, range(8)))
    finally:
        sys.setswitchinterval(interval)
