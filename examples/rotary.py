"""Rotary embedding of queries or keys: a plain kernel, launched on any vendor's device without tuning.

`python examples/rotary.py`, or without a device `TRITON_INTERPRET=1 python examples/rotary.py`.
"""

import os

import torch
import triton
import triton.language as tl

from portable_softmax import persistent


@triton.jit
def rotary_kernel(x, cos, sin, y, n_tokens, n_pairs, BLOCK: tl.constexpr, HALF: tl.constexpr):
    """Rotates the pairs of all heads of a token, HALF pairs per head, by the token's angles."""
    pairs = tl.arange(0, BLOCK)
    mask = pairs < n_pairs
    first = pairs // HALF * (2 * HALF) + pairs % HALF
    for token in range(tl.program_id(0), n_tokens, tl.num_programs(0)):
        at = tl.cast(token, tl.int64) * (2 * n_pairs) + first
        a = tl.load(x + at, mask=mask).to(tl.float32)
        b = tl.load(x + at + HALF, mask=mask).to(tl.float32)
        c = tl.load(cos + token * HALF + pairs % HALF, mask=mask).to(tl.float32)
        s = tl.load(sin + token * HALF + pairs % HALF, mask=mask).to(tl.float32)
        tl.store(y + at, a * c - b * s, mask=mask)
        tl.store(y + at + HALF, b * c + a * s, mask=mask)


forward = persistent(rotary_kernel, rows="n_tokens", cols="n_pairs", block="BLOCK")


def rotary(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Returns x, (tokens, heads, elements of a head), rotated; cos and sin are (tokens, elements of a head / 2)."""
    x = x.contiguous()
    y = torch.empty_like(x)
    tokens, heads, width = x.shape
    forward(x, cos, sin, y, tokens, heads * width // 2, HALF=width // 2)
    return y


def main() -> None:
    """Plans for an absent device, and compares with torch on the local one."""
    interpreted = os.environ.get("TRITON_INTERPRET") == "1"
    if not interpreted:
        print(
            forward.plan(
                "bf16[8192,32,128]",
                "f32[8192,64]",
                "f32[8192,64]",
                "bf16[8192,32,128]",
                8192,
                2048,
                HALF=64,
                device="amd/mi300x",
            )
        )
    where = torch.device("cpu") if interpreted else torch.accelerator.current_accelerator()
    if where is None:
        print("no local accelerator; TRITON_INTERPRET=1 runs the kernel on a CPU")
        return
    x, angles = torch.randn(64, 12, 128, device=where), torch.randn(64, 64, device=where)
    a, b, c, s = *x.chunk(2, -1), angles.cos()[:, None], angles.sin()[:, None]
    theirs = torch.cat([a * c - b * s, b * c + a * s], -1)
    torch.testing.assert_close(rotary(x, angles.cos(), angles.sin()), theirs, rtol=1e-5, atol=1e-5)
    print("right on", where)


if __name__ == "__main__":
    main()
