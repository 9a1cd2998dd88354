"""Problems that the benchmark times: shapes by sweep, and the calls of a sweep."""

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from benchmark.results import DTYPE_BYTES

VOCABULARIES = (32000, 50257, 128256, 151936, 262144)  # Llama 2, GPT-2, Llama 3, Qwen, Gemma
INNER = [(n, inner) for inner in (3, 8, 49, 64, 333, 1024) for n in (10, 64, 300, 1000, 2560, 12000, 40999)]
ROWS = {  # (rows, columns)
    "tutorial": [(4096, 128 * i) for i in range(2, 100)],  # the shapes of Triton's tutorial
    "wide": [(32768, 128 * i) for i in range(1, 17)],
    "long": [(2**28 // n_cols, n_cols) for n_cols in (16384, 32768, 65536, 131072, 262144)],  # 1 GB of float32
    "few": [(m, n) for m in (1, 2, 4, 8, 16, 32, 64, 128) for n in VOCABULARIES],
    "served": [(48, 129280), (256, 50304), (512, 151936), (1024, 32768), (1024, 131072)],  # batches of serving and training
    "unaligned": [(m, n) for m in (1823, 4096, 32768) for n in (781, 1000, 1823, 12673)] + [(1024, 50257), (512, 151936)],
    "tiny": [(2**24 // n, n) for n in (2, 3, 4, 7, 8, 10, 16, 17, 32, 33, 49, 64, 100, 128, 197, 256, 333, 512, 577)]
    + [(m, n) for m in (1, 64) for n in (8, 10, 100, 577)],  # 64 MB of float32, and shapes that take only the time of a launch
    "log_probs": [*((m, 128256) for m in (1, 8, 64, 4096)), (8192, 151936), (16384, 32000)],  # samplers and trainers
    "quick": [(4096, 781), (4096, 4096), (4096, 12672), (1024, 32768), (512, 262144), (8, 128256)],
    "mixed": [(1, 128256), (8, 128256), (48, 129280), (128, 151936), (256, 50304), (64, 50257), (4096, 384), (1823, 781),
              (1024, 32768)],
    "rows16": [(4096, 12672), (1024, 32768), (4096, 32768), (2048, 65536), (1024, 131072), (512, 262144), (128, 151936)],
    "shapes": [(1, 32000), (1, 128256), (2, 256000), (4, 50257), (7, 1000003), (8, 128256), (16, 32064), (32, 151936),
               (48, 129280), (64, 50257), (128, 32000), (128, 151936), (256, 50304), (300, 100003), (512, 151936),
               (512, 262144), (640, 40960), (1000, 10000), (1024, 32768), (1024, 131072), (1823, 781), (2048, 24576),
               (2048, 65536), (2500, 3001), (4096, 781), (4096, 1024), (4096, 2048), (4096, 4096), (4096, 8192),
               (4096, 12672), (4096, 16384), (4096, 32768), (8192, 6144), (16384, 2048), (16384, 16384), (20000, 2500),
               (32768, 128), (32768, 256), (32768, 512), (32768, 781), (32768, 1024), (65536, 384), (100000, 300)],
    "sampling": [(m, n) for m in (1, 8, 64, 256) for n in (32_000, 128_256, 256_000)],
    "own": [(m, n) for n in (1024, 3000, 4096, 8192, 16384) for m in (4096, 16384, 65536)],
}  # fmt: skip
LENGTHS = {  # columns of 64 MB in rows
    "short": (3, 5, 9, 17, 33, 64, 100, 197, 256, 333, 512),
    "medium": (781, 1000, 1024, 2048, 3001, 4096, 5000, 8192, 12672, 15000, 20000),
    "vocabularies": (24576, 32768, 50257, 65536, 100003, 131072, 151936, 262144),
}
HEADS = ((64, 16, 197, 197), (32, 12, 512, 512), (8, 16, 2048, 2048), (1, 16, 4096, 4096), (1, 4, 8192, 8192))
TOKENS = ("token_log_probs", "token_entropy", "token_backward", "token_both")
DIRECTIONS = {  # of a sweep; of others forward, backward and those that are requested
    "attention": ("boolean mask", "added mask", "causal", "gradient, boolean mask", "gradient, causal"),
    "sampling": ("temperature", "plain"),
    "log_probs": TOKENS,
    "own": ("rms_norm", "layer_norm", "cross_entropy"),
    "rows16": ("forward", "backward", "log_softmax"),
    "shapes": ("forward",),
}
SWEEPS = (*ROWS, *LENGTHS, "across", "transposed", "heads", "attention")
Layout = tuple[tuple[int, ...], int, tuple[int, ...]]  # shape, dim, dims that are exchanged in memory


class Problem(NamedTuple):
    """A call on a tensor: its sweep, the shape, type and dim of the tensor, and the dims that are exchanged in memory."""

    sweep: str
    direction: str
    dtype: str
    shape: tuple[int, ...]
    dim: int
    exchanged: tuple[int, ...]

    @property
    def columns(self) -> dict[str, Any]:
        """Returns the columns of a result that name the problem."""
        layout = f"transpose({', '.join(map(str, self.exchanged))})" if self.exchanged else "contiguous"
        named = {name: getattr(self, name) for name in ("sweep", "direction", "dtype", "dim")}
        return named | {"shape": "x".join(map(str, self.shape)), "layout": layout}


def problems(sweeps: Iterable[str], dtypes: Iterable[str], directions: Iterable[str] = (), every: int = 1) -> Iterator[Problem]:
    """Yields the problems of sweeps, of every K-th shape; without directions those of each sweep."""
    for sweep in sweeps:
        for direction in directions or DIRECTIONS.get(sweep, ("forward", "backward")):
            for dtype in dtypes:
                layouts = list(_layouts(sweep, 2**26 // DTYPE_BYTES[dtype]))[::every]
                yield from (Problem(sweep, direction, dtype, *layout) for layout in layouts)


def _layouts(sweep: str, elements: int) -> Iterator[Layout]:
    if sweep in ROWS:
        yield from ((shape, 1, ()) for shape in ROWS[sweep])
    elif sweep in LENGTHS:
        yield from (((elements // n, n), 1, ()) for n in LENGTHS[sweep])
    elif sweep == "across":
        yield from (((elements // (n * inner), n, inner), 1, ()) for n, inner in INNER if n * inner <= elements)
    elif sweep == "transposed":
        yield from (((elements // n, n), 1, (0, 1)) for n in (64, 200, 512, 1000, 4096, 20000))
    elif sweep == "heads":
        yield from (((16, 16, elements // (256 * n), n), 3, (1, 2)) for n in (48, 64, 96, 128, 192))
    else:
        yield from ((shape, 3, ()) for shape in HEADS)
