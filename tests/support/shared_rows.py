"""Rows that programs share in the interpreter: a case of each layout, programs that run at once, and stale memory."""

import dataclasses
from collections.abc import Callable

import msgspec
import torch
from direct import beside, launching
from together import Together

from portable_softmax import current_device
from portable_softmax.devices.policy import Polls
from portable_softmax.planning.plan import Tiling
from portable_softmax.runtime.kernel_form import constexprs_of, kernel_of, signature_of
from portable_softmax.runtime.prepared import arranged
from portable_softmax.runtime.workspace import next_number

ANOTHER = next_number()


def shared(tile_cols, splits, blocks=1, walk=True):
    return Tiling(1, tile_cols // blocks, splits=splits, blocks=blocks, walk=walk)


BESIDE = "rows side by side", "rows read twice"  # in two matrices
CASES = {  # what `forward` and `backward` take, all but the programs
    "beyond the end": ("log_softmax", torch.float32, 40, shared(16, 4, walk=False), 1, None),
    "no mask": ("softmax", torch.bfloat16, 48, shared(16, 3), 8, None),
    "unaligned, in blocks": ("softmax", torch.float32, 85, shared(32, 3, blocks=2), 4, 87),
    "rows side by side": ("softmax", torch.float32, (2, 40, 3), Tiling(4, 8, splits=3, blocks=2), 1, None),
    "rows read twice": ("softmax", torch.float32, (2, 40, 5), Tiling(4, 4, splits=3, blocks=4, held=False), 1, None),
    "a row read twice": ("softmax", torch.float32, 85, Tiling(1, 16, 1, splits=3, blocks=2, held=False), 4, 87),
}


@dataclasses.dataclass(frozen=True)
class Case:
    name: str
    direction: Callable[..., torch.Tensor]

    def __call__(self, run, special=None):
        """The result for two rows, compared with float64."""
        form, dtype, n_cols, tiling, vector, stride = CASES[self.name]
        where = torch.device("cpu")  # the interpreter's
        if self.name in BESIDE:
            how = form, dtype, where, n_cols, tiling, 2 * tiling.splits
            return beside(self.direction, current_device(), run, *how, special=special)
        return self.direction(
            run, form, dtype, where, n_cols, tiling, 2 * tiling.splits, vector, stride, n_rows=2, special=special
        )


def looking(device, polls):
    """The device whose programs look so often before they find what is missing by themselves."""
    policy = msgspec.structs.replace(device.profile.launch, polls=Polls(polls, "a test"))
    return dataclasses.replace(device, profile=msgspec.structs.replace(device.profile, launch=policy))


def at_once(device, seed, left=lambda words, number: None, **together):
    """Launches as `direct.launch` does, of programs that run at once; see Together. `left` fills a launch's words before."""
    return launching(device, prepared_together(device, seed, left, **together))


def prepared_together(device, seed, left=lambda words, number: None, **together):
    """Stands in for runtime.prepared.prepare."""

    def prepare(spec, _, grid, sizes):
        (in_order, fixed), names = arranged(spec, sizes), tuple(signature_of(spec))

        def launch(*operands):
            if spec.exchanges:
                left(*operands[-2:])
            named = dict(zip(names, in_order((*operands, *fixed)), strict=True)) | constexprs_of(spec, device)
            Together(seed, **together).launch(kernel_of(spec), grid[0], **named)

        return launch

    return prepare


def assert_same(result, other):
    assert torch.equal(result.nan_to_num(nan=-2.0), other.nan_to_num(nan=-2.0)), "the bits differ"
    assert torch.equal(result.isnan(), other.isnan())


def stamped(number):
    """Fills words with numbers of another launch: maxima of 100.0 and sums of 3.0."""

    def left(words, launch):
        halves = torch.tensor([number(launch) & 0xFFFFFFFF, number(launch) >> 32]).repeat(len(words) // 2)
        words.copy_(halves << 32 | torch.tensor([100.0, 3.0]).view(torch.int32).repeat(len(words) // 2))

    return left


def constant(value):
    return lambda words, launch: words.view(torch.int32).fill_(value)


STALE = {
    "the launch before": stamped(lambda launch: launch - 0x9E3779B97F4A7C15 & (1 << 63) - 1),
    "any other launch": stamped(lambda launch: ANOTHER),
    "halves swapped": stamped(lambda launch: (launch & 0xFFFFFFFF) << 32 | launch >> 32 & 0xFFFFFFFF),
    "the same low half": stamped(lambda launch: launch ^ 1 << 40),
    "the same high half": stamped(lambda launch: launch ^ 1 << 20),
    "zeros": constant(0),
    "ones": constant(1),
    "-1": constant(-1),
    "1.0": constant(0x3F800000),
    "nan": constant(0x7FC00000),
}
