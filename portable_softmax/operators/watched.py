"""The context that notes a model's calls."""

import contextlib
from collections.abc import Iterator

from portable_softmax.operators import kept
from portable_softmax.runtime import calls as noted
from portable_softmax.runtime.calls import Calls


@contextlib.contextmanager
def watch_calls() -> Iterator[Calls]:
    """Makes a context that notes each launch in it, in any thread, gradients too: `with watch_calls() as calls: model(x)`.

    `calls.save(path)` writes them to a file, and `warm_up(path)` in another process, or `warm_up(calls)` in this one, prepares
    them for its device, which may be another one. They are launches of exactly these shapes, types, strides and alignments: a
    model is best watched with each size of batch that it will be called with. What a CUDA graph replays is not seen, nor is
    what torch computes, as for tensors on the CPU.
    """
    calls = Calls()
    kept.forget()  # a call that is repeated says no more what it is
    noted.begin(calls)
    try:
        yield calls
    finally:
        noted.end(calls)
