"""Samples of tokens: a group of columns is drawn while a row is reduced, and then one of its columns."""

import triton
import triton.language as tl

from portable_softmax.kernels.common import ELEMENTS, NEG_INF
from portable_softmax.kernels.noise import gumbel
from portable_softmax.kernels.reduce import NO_GROUP, reduce_row
from portable_softmax.kernels.scores import load_scores


@triton.jit
def draw_token(
    x, mask, m_col, misalignment, row_end, exists, scale, temperature, seed, position, group, least, C: tl.constexpr
):
    """Returns (column, its score) per row, drawn from those of a group; those below `least` are replaced by a second draw."""
    ids, score = draw(x, mask, m_col, misalignment, row_end, exists, scale, temperature, seed, position, group, C)
    if C.MIN_P != "":
        below = exists & (score < least)
        if tl.max(below.to(tl.int32)) != 0:
            _peak, _total, _moment, _best, another = reduce_row(
                x, mask, 1, m_col, misalignment, row_end, below, scale, temperature, 0, C, seed, position, least
            )
            below = below & (another != NO_GROUP)  # min_p of 1 or more
            other, its_score = draw(
                x, mask, m_col, misalignment, row_end, below, scale, temperature, seed, position, another, C, least
            )
            ids, score = tl.where(below, other, ids), tl.where(below, its_score, score)
    return ids, score


@triton.jit
def draw(x, mask, m_col, misalignment, row_end, exists, scale, temperature, seed, position, group, C: tl.constexpr, least=None):
    """Returns (column, its score) per row, drawn from those of a group that have scores of `least` or more."""
    columns = tl.where(group == NO_GROUP, 0, group) * C.GROUP + tl.expand_dims(tl.arange(0, C.GROUP), 0)
    s = load_scores(x, mask, 0, columns, 1, m_col, misalignment, row_end, exists, scale, temperature, ELEMENTS, C)
    if least is not None:
        s = tl.where(s < least, NEG_INF, s)
    noisy = s + gumbel(columns, seed, position, 1 if least is None else 3, C)
    if C.TEMPERATURE != "":
        noisy = tl.where(temperature == 0, s, noisy)
    column = tl.min(tl.where(noisy == tl.max(noisy, 1, keep_dims=True), columns, NO_GROUP), 1, keep_dims=True)
    return column, tl.max(tl.where(columns == column, s, NEG_INF), 1, keep_dims=True)
