"""A mask in bits, of the ids that are kept."""

import triton
import triton.language as tl


@triton.jit
def pack_kernel(words_ptr, ids_ptr, n_ids, row_ids, n_cols, n_words, BLOCK: tl.constexpr):
    """Sets the bits of ids, `row_ids` of each row, in words that are 0; ids that are no column set none."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    ids = tl.load(ids_ptr + at, mask=at < n_ids, other=-1)
    word = at // row_ids * n_words + (ids >> 5)
    bit = tl.full((BLOCK,), 1, tl.int32) << (ids & 31).to(tl.int32)
    tl.atomic_or(words_ptr + word, bit, mask=(ids >= 0) & (ids < n_cols), sem="relaxed")
