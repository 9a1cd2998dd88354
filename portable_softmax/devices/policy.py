"""Launch rules: what is preferred on an architecture or a product, as data. A profile's `launch`.

Hardware facts and the compiled kernel say what is possible, rules say what is tried first. A rule has conditions and
choices; the first launch of the first rule that takes a problem, compiles and fits the device, is taken.
"""

from typing import Annotated, Any, Literal

import msgspec

from portable_softmax.devices.schema import LARGEST_TILE, Fact, Positive, PowerOfTwo

MOST_POLLS = 2**16  # a choice of this project: some hundredths of a second
MOST_STAGES = 8  # a choice of this project: Triton unrolls the prologue of its pipeline, and hundreds compile for minutes

Strategy = Literal["tile", "online", "shared"]
Direction = Literal["forward", "backward"]
Access = Literal["vector", "narrow", "scalar", "ragged", "paired"]
Layout = Literal["rows", "across", "turned"]
Step = Literal["reduce", "map"]
Unset = msgspec.UnsetType
Elements = Annotated[int, msgspec.Meta(ge=1, le=LARGEST_TILE)]
Power = Annotated[int, msgspec.Meta(ge=1, le=LARGEST_TILE, extra_json_schema={"enum": [2**power for power in range(21)]})]


class LaunchRule(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A row of `launch.rules`: conditions, each of which holds where it is left out, and choices.

    Raises:
        ValueError: no problem meets the conditions, or the choices do not go together.
    """

    source: str
    step: Step | Unset = msgspec.UNSET  # of rows that are sharded over devices: to numbers of each row, or to results
    direction: Direction | Unset = msgspec.UNSET
    element_bytes: Literal[2, 4, 8] | Unset = msgspec.UNSET  # of the result's type
    access: Access | Unset = msgspec.UNSET  # vector: of 16 bytes; narrow: of fewer; scalar: of an element; else see Problem
    layout: Layout | Unset = msgspec.UNSET  # rows: of elements next to each other; across: side by side; turned: see Problem
    from_cols: Positive | Unset = msgspec.UNSET  # the first row length, in elements
    to_cols: Positive | Unset = msgspec.UNSET  # the last
    from_load: Positive | Unset = msgspec.UNSET  # elements of all rows for each thread that the device holds at once
    to_load: Positive | Unset = msgspec.UNSET

    strategy: Strategy
    tile_elements: Power | Unset = msgspec.UNSET  # tile: short rows share one of up to so many
    tile_words: Elements | Unset = msgspec.UNSET  # tile: short rows share one of so many words of 32 bits, or accesses
    max_tile_elements: Elements | Unset = msgspec.UNSET  # tile: of one of rows that lie side by side or turned; without, none
    tile_rows: Power | Unset = msgspec.UNSET  # shared: rows that lie side by side, of which programs share so many at once
    tile_cols: Elements | Unset = msgspec.UNSET  # online: columns of a tile; shared: of a part of a row that is held
    read_twice: Literal[True] | Unset = msgspec.UNSET  # shared: parts for all programs that are resident, a piece at a time
    num_warps: Power | Unset = msgspec.UNSET  # shared: of a part; tile: of one, instead of elements_per_thread
    elements_per_thread: Positive | Unset = msgspec.UNSET  # 32-bit elements that a thread holds of a tile in one piece
    elements_per_piece: Power | Unset = msgspec.UNSET  # that a thread holds of a piece, where a tile is held in several
    max_registers: Positive | Unset = msgspec.UNSET  # per thread, that the compiler may use
    most_parts: Positive | Unset = msgspec.UNSET  # programs that share a row; left out, 64
    spilled_bytes: Positive | Unset = msgspec.UNSET  # per thread, that it may spill; left out, none
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
        """The conditions that are given, by key."""
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
    """A row of `launch.ragged`: rows that are read in vectors of 16 bytes between two edges, though they start anywhere."""

    from_cols: Positive  # the first length, in elements
    source: str
    element_bytes: Literal[2, 4, 8] | Unset = msgspec.UNSET  # of the result's type
    access: Literal["scalar", "narrow"] | Unset = msgspec.UNSET  # that they would be read with else

    def takes(self, n_cols: int, element_bytes: int, access: Access) -> bool:
        """Tells whether rows of such elements, and so many, are taken."""
        given = self.element_bytes or element_bytes, self.access or access
        return n_cols >= self.from_cols and given == (element_bytes, access)


class Polls(Fact, frozen=True, forbid_unknown_fields=True):
    """Looks for what others publish: so many take a while, and no more are counted."""

    value: Annotated[int, msgspec.Meta(ge=1, le=MOST_POLLS)]


class Grid(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`tile`: one program per tile. `resident`: as many programs as the device holds at once, each walking tiles."""

    value: Literal["tile", "resident"]
    source: str


class LaunchPolicy(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Preferences for launches that were measured or reasoned, never limits.

    Raises:
        ValueError: the last rule has conditions, so some problems would have no launch; or programs share rows with no `polls`.
    """

    grid: Grid
    rules: list[LaunchRule]
    polls: Polls | Unset = msgspec.UNSET  # for what another program finds, before it is computed again
    ragged: list[RaggedRows] = []  # of rows that start anywhere; others of them are read in narrower accesses
    min_programs_per_multiprocessor: Fact | Unset = msgspec.UNSET  # so many are kept before short rows share a tile
    line_elements: PowerOfTwo | Unset = msgspec.UNSET  # that a tile takes of each line, where rows lie side by side
    min_line_elements: PowerOfTwo | Unset = msgspec.UNSET  # that it takes at least, for the whole of a row

    def __post_init__(self) -> None:
        if not self.rules or self.rules[-1].conditions or self.rules[-1].strategy != "online":
            raise ValueError("the last rule takes whatever no other rule takes: strategy online, with no conditions")
        if not self.polls and any(rule.strategy == "shared" for rule in self.rules):
            raise ValueError("rows that programs share need polls too")
