"""A small tiling of each strategy, and the types that it is tried in."""

import torch

from portable_softmax.planning.plan import Tiling

WIDTH = 16  # of a block, a split or a tile: masks end there and elsewhere
TILINGS = {
    "tile": Tiling(2, 64),
    "blocks": Tiling(1, 16, blocks=3),
    "online": Tiling(2, WIDTH, held=False),
    "shared": Tiling(1, WIDTH, splits=4),
    "shared blocks": Tiling(1, WIDTH, splits=2, blocks=2),
}
DTYPES = (torch.float16, torch.bfloat16, torch.float32)
CASES = [(name, dtype) for name in TILINGS for dtype in DTYPES]
