"""Noise of samples: a function of a number, a seed and a position alone, the same on all devices."""

import triton
import triton.language as tl

from portable_softmax.kernels.common import LN2, fma


@triton.jit
def gumbel(number, seed, position, purpose, C: tl.constexpr):
    """Returns Gumbel noise, -log(-log(1 - v)), by Philox4x32 with the counter (number, position, purpose) and the key seed.

    The purpose is 0 for groups, 1 for tokens of the one drawn, and 2 and 3 where another is drawn above min_p. v has 32 bits,
    and where the noise is large a float's relative precision: log(1 - v) is a series there.
    """
    low, high = (position & 0xFFFFFFFF).to(tl.uint32), (position >> 32).to(tl.uint32)
    key, key_high = (seed & 0xFFFFFFFF).to(tl.uint32), (seed >> 32).to(tl.uint32)
    counter = number.to(tl.uint32)
    word, two, three = counter, high, counter * 0 + purpose
    for _ in tl.static_range(7):  # tl.philox_impl has the rounds of Triton's random numbers, and needs an unsigned tl.umulhi
        a, c = upper_half(word, 0xD2511F53, C), upper_half(two, 0xCD9E8D57, C)
        word, low, two, three = c ^ low ^ key, two * 0xCD9E8D57, a ^ three ^ key_high, word * 0xD2511F53
        key, key_high = key + 0x9E3779B9, key_high + 0xBB67AE85
    # In halves: not all vector units cast unsigned numbers.
    upper, lower = (word >> 16).to(tl.int32).to(tl.float32), (word & 0xFFFF).to(tl.int32).to(tl.float32)
    v = fma(upper, 65536.0, lower, C) * 2.3283064365386963e-10 + 1.1641532182693481e-10  # (word + 1/2) / 2**32
    series = v * fma(v, fma(v, 0.33333334, 0.5, C), 1.0, C)
    log = tl.where(v < 0.0078125, series, log2(1.0 - tl.minimum(v, 0.99999994), C) * -LN2)
    return log2(log, C) * -LN2


@triton.jit
def upper_half(word, FACTOR: tl.constexpr, C: tl.constexpr):
    """Returns the upper 32 bits of a product of unsigned words."""
    if C.FUSED:
        high = tl.umulhi(word, tl.full((1, 1), FACTOR, tl.uint32))
    else:
        low_low, low_high = (word & 0xFFFF) * (FACTOR & 0xFFFF), (word & 0xFFFF) * (FACTOR >> 16)
        high_low, high_high = (word >> 16) * (FACTOR & 0xFFFF), (word >> 16) * (FACTOR >> 16)
        middle = (low_low >> 16) + (low_high & 0xFFFF) + (high_low & 0xFFFF)
        high = high_high + (low_high >> 16) + (high_low >> 16) + (middle >> 16)
    return high


@triton.jit
def log2(x, C: tl.constexpr):
    """Returns the hardware's logarithm: that of Triton is a function of 20 instructions on some devices."""
    return tl.inline_asm_elementwise(C.LOG2, "=f,f", [x], tl.float32, is_pure=True, pack=1) if C.LOG2 != "" else tl.log2(x)
