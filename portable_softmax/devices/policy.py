"""Launch rules, as data: the launches that are tried first on an architecture or a product. A profile's `launch`.

Hardware facts and the compiled kernel say what is possible; rules say what is tried first. A rule has conditions and choices.
The planner takes the first rule that applies to the problem, and its first launch that compiles and fits the device.
"""

from typing import Annotated, Any, Literal

import msgspec

from portable_softmax.devices.schema import LARGEST_TILE, Fact, Positive, PowerOfTwo

MOST_POLLS = 2**16  # a choice of this project: some hundredths of a second
MOST_STAGES = 8  # a choice of this project: Triton unrolls the prologue of its pipeline; hundreds of stages compile for minutes

Strategy = Literal["tile", "online", "shared"]
Direction = Literal["forward", "backward"]
Access = Literal["vector", "narrow", "scalar", "ragged", "paired"]
Layout = Literal["rows", "across", "turned"]
Step = Literal["reduce", "map"]
Unset = msgspec.UnsetType
Elements = Annotated[int, msgspec.Meta(ge=1, le=LARGEST_TILE)]
Power = Annotated[int, msgspec.Meta(ge=1, le=LARGEST_TILE, extra_json_schema={"enum": [2**power for power in range(21)]})]


class LaunchRule(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A row of `launch.rules`: conditions and choices. A condition that is absent always holds.

    Raises:
        ValueError: no problem meets the conditions, or the choices contradict each other.
    """

    source: str
    step: Step | Unset = msgspec.UNSET  # for rows that are sharded over devices: reduce a shard, or compute its results
    direction: Direction | Unset = msgspec.UNSET
    element_bytes: Literal[2, 4, 8] | Unset = msgspec.UNSET  # bytes of an element of the result
    access: Access | Unset = msgspec.UNSET  # vector: 16 bytes; narrow: fewer; scalar: one element; else see Problem
    layout: Layout | Unset = msgspec.UNSET  # rows: their elements are neighbours; across: rows are; turned: see Problem
    from_cols: Positive | Unset = msgspec.UNSET  # shortest row, in elements
    to_cols: Positive | Unset = msgspec.UNSET  # longest row, in elements
    from_load: Positive | Unset = msgspec.UNSET  # elements of all rows for each thread that the device holds at once
    to_load: Positive | Unset = msgspec.UNSET

    strategy: Strategy
    tile_elements: Power | Unset = msgspec.UNSET  # tile: short rows share a tile of at most so many elements
    tile_words: Elements | Unset = msgspec.UNSET  # tile: short rows share a tile of so many 32-bit words, or accesses
    max_tile_elements: Elements | Unset = msgspec.UNSET  # tile: largest for rows across or turned; absent: takes none
    tile_rows: Power | Unset = msgspec.UNSET  # shared: rows of a tile, for rows that lie side by side
    tile_cols: Elements | Unset = msgspec.UNSET  # online: columns of a tile; shared: columns of a part that is held
    read_twice: Literal[True] | Unset = msgspec.UNSET  # shared: parts for all resident programs, one piece at a time
    num_warps: Power | Unset = msgspec.UNSET  # shared: for a part; tile: for a tile, instead of elements_per_thread
    elements_per_thread: Positive | Unset = msgspec.UNSET  # 32-bit elements that a thread holds of a tile in one piece
    elements_per_piece: Power | Unset = msgspec.UNSET  # elements that a thread holds of each of several pieces
    max_registers: Positive | Unset = msgspec.UNSET  # registers per thread, at most; a limit for the compiler
    most_parts: Positive | Unset = msgspec.UNSET  # programs that share a row, at most; 64 if absent
    spilled_bytes: Positive | Unset = msgspec.UNSET  # bytes that a thread may spill; none if absent
    num_stages: Annotated[int, msgspec.Meta(ge=1, le=MOST_STAGES)] | Unset = msgspec.UNSET

    def __post_init__(self) -> None:
        for key in ("cols", "load"):
            first, last = getattr(self, f"from_{key}"), getattr(self, f"to_{key}")
            if first and last and first > last:
                raise ValueError(f"from_{key} {first} is above to_{key} {last}")
        for key in POWERS_OF_TWO:
            if (value := getattr(self, key)) and value.bit_count() != 1:
                raise ValueError(f"{key} {value} is not a power of two")
        if self.tile_rows and self.layout not in ("across", "turned"):
            raise ValueError("tile_rows is for rows that lie side by side; give layout: across, or turned")
        variants = {"tile": self.tile_words and "tile of words", "shared": self.read_twice and "shared, read twice"}
        kind = variants.get(self.strategy) or self.strategy
        if needed := [key for key in NEEDED[kind] if not getattr(self, key)]:
            raise ValueError(f"strategy {kind} needs {', '.join(needed)}")
        if unused := [key for key in CHOICES if getattr(self, key) and key not in USED[kind]]:
            raise ValueError(f"strategy {kind} has no use for {', '.join(unused)}")
        if self.num_warps and self.elements_per_thread:
            raise ValueError("num_warps and elements_per_thread both say how many warps a program has; give one of them")

    @property
    def conditions(self) -> dict[str, Any]:
        """Returns the conditions that are given, by key."""
        return {key: value for key in CONDITIONS if (value := getattr(self, key)) is not msgspec.UNSET}


CONDITIONS = ("step", "direction", "element_bytes", "access", "layout", "from_cols", "to_cols", "from_load", "to_load")
NEEDED = {
    "tile": ("tile_elements",),
    "tile of words": ("num_warps",),
    "online": ("tile_cols",),
    "shared": ("tile_cols", "num_warps"),
    "shared, read twice": ("num_warps", "elements_per_piece", "max_registers"),
}
OF_THE_COMPILER = ("max_registers", "spilled_bytes", "num_stages")
USED = {
    "tile": ("tile_elements", "max_tile_elements", "num_warps", "elements_per_thread", "elements_per_piece", *OF_THE_COMPILER),
    "tile of words": ("tile_words", "num_warps", *OF_THE_COMPILER),
    "online": ("tile_cols", "elements_per_thread", *OF_THE_COMPILER),
    "shared": ("tile_rows", "tile_cols", "num_warps", "most_parts", "elements_per_piece", *OF_THE_COMPILER),
    "shared, read twice": ("tile_rows", "read_twice", "num_warps", "most_parts", "elements_per_piece", *OF_THE_COMPILER),
}
CHOICES = tuple(dict.fromkeys(key for keys in USED.values() for key in keys))
POWERS_OF_TWO = ("tile_elements", "num_warps", "elements_per_piece")


class RaggedRows(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A row of `launch.ragged`: ragged rows that are read in vectors of 16 bytes between two edges."""

    from_cols: Positive  # shortest row, in elements
    source: str
    element_bytes: Literal[2, 4, 8] | Unset = msgspec.UNSET  # bytes of an element of the result
    access: Literal["scalar", "narrow"] | Unset = msgspec.UNSET  # access that they would have otherwise

    def takes(self, n_cols: int, element_bytes: int, access: Access) -> bool:
        """Tells whether rows of this length, element size and access are read like this."""
        given = self.element_bytes or element_bytes, self.access or access
        return n_cols >= self.from_cols and given == (element_bytes, access)


class Polls(Fact, frozen=True, forbid_unknown_fields=True):
    """Number of looks at a neighbour's words. It is limited, because each look takes time."""

    value: Annotated[int, msgspec.Meta(ge=1, le=MOST_POLLS)]


class Grid(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Number of programs. `tile`: one per tile. `resident`: as many as the device holds at once, and each walks over tiles."""

    value: Literal["tile", "resident"]
    source: str


class LaunchPolicy(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Preferences for launches that were measured or reasoned, never limits.

    Raises:
        ValueError: the last rule has conditions, so some problems would have no launch; or programs share rows without `polls`.
    """

    grid: Grid
    rules: list[LaunchRule]
    polls: Polls | Unset = msgspec.UNSET  # looks for a neighbour's numbers; then a program computes them itself
    ragged: list[RaggedRows] = []  # ragged rows that are read in vectors; all others are read in narrower accesses
    min_programs_per_multiprocessor: Fact | Unset = msgspec.UNSET  # short rows share a tile only while so many programs remain
    line_elements: PowerOfTwo | Unset = msgspec.UNSET  # elements that a tile takes of each line, for rows side by side
    min_line_elements: PowerOfTwo | Unset = msgspec.UNSET  # the fewest that it takes, if it holds whole rows

    def __post_init__(self) -> None:
        if not self.rules or self.rules[-1].conditions or self.rules[-1].strategy != "online":
            raise ValueError("the last rule must take whatever no other rule takes: give it strategy online and no conditions")
        if not self.polls and any(rule.strategy == "shared" for rule in self.rules):
            raise ValueError("strategy shared needs launch.polls")
