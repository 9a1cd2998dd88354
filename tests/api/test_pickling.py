"""Functions that were fetched in a context of patch_torch are pickled as torch's own."""

import copy
import functools
import io
import pickle
import subprocess
import sys

import pytest
import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader

from portable_softmax import patch_torch

FETCHED = {
    "torch": lambda: torch.softmax,
    "torch, log": lambda: torch.log_softmax,
    "special": lambda: torch.special.softmax,
    "special, log": lambda: torch.special.log_softmax,
    "method": lambda: torch.Tensor.softmax,
    "method, log": lambda: torch.Tensor.log_softmax,
    "functional": lambda: F.softmax,
    "functional, log": lambda: F.log_softmax,
    "softmin": lambda: F.softmin,
}
LOAD = "import sys; sys.modules['portable_softmax'] = None; import pickle; print(*map(repr, pickle.load(sys.stdin.buffer)))"


@pytest.mark.parametrize("fetch", FETCHED.values(), ids=FETCHED)
@pytest.mark.parametrize("protocol", [0, 2, 4, pickle.HIGHEST_PROTOCOL])
def test_what_is_fetched_inside_is_pickled_as_torchs_own(fetch, protocol):
    with patch_torch():
        fetched = fetch()
        inside = pickle.dumps(fetched, protocol)
        assert pickle.loads(inside) is fetched, "what stands there"
    assert fetched is not fetch()
    for pickled in (inside, pickle.dumps(fetched, protocol)):
        assert pickle.loads(pickled) is fetch()


def test_pickles_load_where_this_package_is_not():
    with patch_torch():
        pickled = pickle.dumps([fetch() for fetch in FETCHED.values()])
    loaded = subprocess.run([sys.executable, "-c", LOAD], input=pickled, capture_output=True, check=True).stdout.decode()
    assert loaded.count("softm") == len(FETCHED)
    assert "bound" not in loaded


@pytest.mark.parametrize("fetch", FETCHED.values(), ids=FETCHED)
def test_copies_are_no_others(fetch):
    with patch_torch():
        fetched = fetch()
        assert copy.deepcopy(fetched) == fetched
        assert copy.copy(fetched) == fetched
    assert copy.deepcopy(fetched) == fetched


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.act, self.partial = torch.softmax, functools.partial(F.softmax, dim=-1)
        self.layer = torch.nn.TransformerEncoderLayer(8, 2, 16, activation=self.partial, dropout=0.0, batch_first=True)
        self.layers = torch.nn.TransformerEncoder(self.layer, 2, enable_nested_tensor=False)

    def forward(self, x):
        return self.layers(self.partial(self.act(x, 1)))


def saved(model):
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    return file


def test_models_made_inside_are_saved_inside_and_afterwards():
    x = torch.randn(3, 8)
    with patch_torch():
        model = Model()
        files = [saved(model)]
    files.append(saved(model))
    expected = model(x)
    for file in files:
        loaded = torch.load(file, weights_only=False)
        assert (loaded.act, loaded.partial.func) == (torch.softmax, F.softmax)
        torch.testing.assert_close(loaded(x), expected)


def test_torchs_own_functions_are_saved_inside():
    """But not those of torch.nn.functional: pickle finds by name what stands there instead, and says so."""
    theirs = [fetch() for fetch in FETCHED.values()]
    with patch_torch():
        for function in theirs:
            if function in (F.softmax.__wrapped__, F.log_softmax.__wrapped__, F.softmin.__wrapped__):
                with pytest.raises(pickle.PicklingError, match=r"not the same object as torch\.nn\.functional"):
                    pickle.dumps(function)
            else:
                assert pickle.loads(pickle.dumps(function)) is function


def test_workers_that_are_spawned_get_what_was_fetched_inside():
    x = torch.randn(3, 8)
    with patch_torch():
        loader = DataLoader(
            [x], batch_size=None, collate_fn=functools.partial(F.softmax, dim=1), num_workers=1, multiprocessing_context="spawn"
        )
        (result,) = loader
    torch.testing.assert_close(result, torch.softmax(x, 1))
