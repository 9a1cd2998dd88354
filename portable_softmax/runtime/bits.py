"""The launch that packs the ids of kept tokens."""

import torch
from torch import Tensor

BLOCK = 1024  # ids of a program


def pack(ids: Tensor, n_cols: int) -> Tensor:
    """Returns a mask of n_cols bits, int32 [..., ceil(n_cols / 32)], of int64 ids [..., K]; its device is the current one."""
    from portable_softmax.kernels.bits import pack_kernel  # slow to import

    n_words = -(-n_cols // 32)
    words = torch.zeros((*ids.shape[:-1], n_words), dtype=torch.int32, device=ids.device)
    pack_kernel[(-(-ids.numel() // BLOCK),)](words, ids, ids.numel(), ids.shape[-1], n_cols, n_words, BLOCK)
    return words
