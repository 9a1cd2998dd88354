"""DPP: a vector instruction reads its first operand from other lanes of the row ("Data Parallel Processing" in the guides).

A row is 16 lanes; a bank and a quad are 4.
"""

import re
from collections.abc import Callable

import numpy as np

from amdgcn_cpu.arrays import Array
from amdgcn_cpu.operands import Lanes
from amdgcn_cpu.state import Wave

_GFX9_ONLY = {"row_bcast", "wave_shr", "wave_shl", "wave_ror", "wave_rol"}
_GFX10_ONLY = {"row_share", "row_xmask"}
_VALUES = {  # values that an assembler accepts, for controls that have one
    "quad_perm": r"\[[0-3],[0-3],[0-3],[0-3]\]",
    "row_bcast": "15|31",
    **dict.fromkeys(("wave_shl", "wave_shr"), "1"),
    **dict.fromkeys(("row_shl", "row_shr", "row_ror"), "[1-9]|1[0-5]"),
    **dict.fromkeys(("row_newbcast", "row_share", "row_xmask"), "[0-9]|1[0-5]"),
    **dict.fromkeys(("row_mask", "bank_mask"), "0x[0-9a-f]"),
    **dict.fromkeys(("bound_ctrl", "fi"), "1"),
}


class Dpp:
    """Lanes from which a DPP instruction reads its first operand.

    Args:
        origin: for each lane, the lane that it reads.
        inside: whether that lane exists in its row.
        enabled: lanes that row_mask and bank_mask allow to be written.
        bound_ctrl: True: a lane that reads no lane, or an inactive one, reads 0. False: it is not written.
        fetch_inactive: whether inactive lanes can be read (gfx10 and later).
    """

    def __init__(self, origin: Array, inside: Array, enabled: Array, bound_ctrl: bool, fetch_inactive: bool) -> None:
        self.origin, self.inside, self.enabled = np.where(inside, origin, 0), inside, enabled
        self.bound_ctrl, self.fetch_inactive = bound_ctrl, fetch_inactive

    def _found(self, wave: Wave) -> Array:
        return self.inside if self.fetch_inactive or wave.all_active else self.inside & wave.active[self.origin]

    def of(self, read: Lanes) -> Lanes:
        """Returns the operand as the lanes read it."""
        return lambda wave: np.where(self._found(wave), values := read(wave)[self.origin], values.dtype.type(0))

    def written(self, wave: Wave) -> Array:
        """Returns the lanes whose results are written."""
        lanes = wave.active & self.enabled
        return lanes if self.bound_ctrl else lanes & self._found(wave)


def dpp_of(modifiers: dict[str, str], arch: str, wave_size: int) -> Dpp | None:
    """Takes a DPP control and its masks from an instruction's modifiers; returns None if no assembler accepts them."""
    controls = [name for name in modifiers if name in _CONTROLS]
    forbidden = _GFX10_ONLY if arch.startswith("gfx9") else _GFX9_ONLY
    valid = all(re.fullmatch(_VALUES.get(name, ""), value) for name, value in modifiers.items() if name in _VALUES | _CONTROLS)
    if len(controls) != 1 or controls[0] in forbidden or not valid:
        return None
    lane = np.arange(wave_size)
    origin = np.asarray(_CONTROLS[controls[0]](lane, modifiers.pop(controls[0])))
    rows, banks = (int(modifiers.pop(name, "0xf"), 0) for name in ("row_mask", "bank_mask"))
    enabled = (rows >> lane // 16 & 1 & banks >> lane % 16 // 4).astype(bool)
    zero, inactive = (modifiers.pop(name, None) is not None for name in ("bound_ctrl", "fi"))
    return Dpp(origin, origin >= 0, enabled, zero, inactive)


def _within(lane: Array, place: Array) -> Array:
    """Returns the lanes at these places of their rows; -1 for a place in another row."""
    return np.where((place >= 0) & (place < 16), lane // 16 * 16 + place, -1)


def _broadcast(lane: Array, last: str) -> Array:
    """Returns the lanes that a broadcast reads.

    ROW_BCAST15 sends the last lane of each row to the next row; ROW_BCAST31 sends lane 31 to rows 2 and 3.
    """
    if last == "15":
        return lane // 16 * 16 - 1
    return np.where(lane >= 32, 31, -1)


def _numbers(text: str) -> Array:
    return np.array([int(number) for number in re.findall(r"\d+", text)])


# DPP_CTRL: for each lane, the lane that it reads; -1 is none.
_CONTROLS: dict[str, Callable[[Array, str], Array]] = {
    "quad_perm": lambda lane, order: lane // 4 * 4 + _numbers(order)[lane % 4],
    "row_shl": lambda lane, count: _within(lane, lane % 16 + int(count)),
    "row_shr": lambda lane, count: _within(lane, lane % 16 - int(count)),
    "row_ror": lambda lane, count: _within(lane, (lane - int(count)) % 16),
    "row_mirror": lambda lane, _: _within(lane, 15 - lane % 16),
    "row_half_mirror": lambda lane, _: lane // 8 * 8 + 7 - lane % 8,
    "row_bcast": _broadcast,
    "wave_shl": lambda lane, _: np.where(lane + 1 < len(lane), lane + 1, -1),
    "wave_shr": lambda lane, _: lane - 1,
    "row_newbcast": lambda lane, which: _within(lane, np.full_like(lane, int(which))),
    "row_share": lambda lane, which: _within(lane, np.full_like(lane, int(which))),
    "row_xmask": lambda lane, mask: _within(lane, lane % 16 ^ int(mask)),
}
