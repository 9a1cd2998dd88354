"""Uses softmax under torch.compile and in a CUDA graph: `python examples/compile_and_graph.py`."""

import torch

from portable_softmax import softmax

HERE = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else torch.device("cpu")


def scores(q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
    """Computes attention weights of [length, width] queries and keys."""
    return softmax(q @ k.mT * q.shape[-1] ** -0.5)


# fullgraph=True: the softmax is one operator of torch, so nothing breaks the graph.
# dynamic=True: other shapes do not compile again.
backend = "inductor" if HERE.type != "cpu" else "aot_eager"  # Inductor needs a C++ compiler on the CPU
compiled = torch.compile(scores, fullgraph=True, dynamic=True, backend=backend)
for length in (64, 100):
    q, k = torch.randn(2, length, 32, device=HERE)
    assert torch.allclose(compiled(q, k), scores(q, k), atol=1e-5)
print(f"torch.compile on {HERE}: the same numbers for 64 and 100 queries")

if HERE.type == "cuda":
    q, k = torch.randn(2, 64, 32, device=HERE)
    scores(q, k)  # the first call compiles, which a capture must not
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        weights = scores(q, k)
    q.copy_(torch.randn_like(q))
    graph.replay()
    assert torch.equal(weights, scores(q, k))
    print("CUDA graph: a replay has the same bits as a call")
else:
    print("CUDA graph: there is no CUDA device here")
