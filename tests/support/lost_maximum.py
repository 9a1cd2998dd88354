"""`verify` sees a kernel that loses a split of a row's maximum: each split is taken out of code that is right, one at a time.

A vendor's test file takes these tests (`from lost_maximum import *`) and has CASES, those of them that are QUICK, the function
`losses(code, n_cols)`, which yields (what is lost, a function that takes it out of the code), and the fixture `verified`: a
function of a case and a change of its kernel's code that tells whether the result is right.
"""

import pytest

SEEN = 0.95  # of all
FEW = 4


def pytest_generate_tests(metafunc):
    for fixture, table in (("case", "CASES"), ("quick", "QUICK")):
        if fixture in metafunc.fixturenames:
            metafunc.parametrize(fixture, getattr(metafunc.module, table), ids=str)


@pytest.fixture
def missed(request, verified, record_count):
    """Takes splits out of the maximum, all or a few, and returns those whose loss is not seen, and the number of all."""

    def run(case, few=False):
        codes = []
        assert verified(*case, lambda code: codes.append(code) or code)
        chosen = every = list(request.module.losses(codes[0], case[2]))
        if few:
            chosen = [every[at * (len(every) - 1) // (FEW - 1)] for at in range(FEW)]
        found = [name for name, change in chosen if verified(*case, change)]
        record_count(f"splits lost of a maximum, {', '.join(map(str, case))}", len(chosen), len(found))
        return found, len(chosen)

    return run


def test_some_splits_of_the_maximum_that_are_lost(missed, quick):
    found, _ = missed(quick, few=True)
    assert not found


@pytest.mark.slow
def test_each_split_of_the_maximum_that_is_lost(missed, case):
    found, total = missed(case)
    assert len(found) <= (1 - SEEN) * total, found
