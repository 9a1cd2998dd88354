"""Everything that a kernel is compiled for, as one constexpr: kernels read it as FORM.name.

A tensor is taken as matrices of lines; the elements of a line are next to each other in memory. A line is a row, or it holds
the same column of neighbouring rows, so an inner dimension of a tensor needs no transposed copy. A program takes tiles of
`tile_rows` rows and `tile_cols` columns, `tl.num_programs(0)` apart, so any number of programs is right.
"""

from dataclasses import dataclass, replace
from typing import Any

DTYPES = ("compute", "rounded_to")  # fields that name a type


@dataclass(frozen=True, kw_only=True)
class Form:
    """Everything that a kernel is compiled for, beside the types of its operands. Properties follow from fields."""

    # What is computed.
    backward: bool  # dx of dy and y; else y of x
    log: bool  # of log_softmax
    negate: bool  # of softmin
    exact: bool  # float32 and float64: exponentials and quotients to the last bit
    compute: str  # type of all arithmetic
    rounded_to: str  # type that an input is rounded to first: that of y

    # How rows lie in memory.
    axis: int  # that of a row's elements in a tile. 1: they are next to each other in x, or dy; 0: those of a column are
    out_axis: int  # the same of y, and of the result; another one than `axis` for a transposed x
    depth: int  # 1: all lines are one distance apart; 2: they lie in matrices; 3: and these in blocks
    flat: bool  # the rows of a tile may lie in several matrices; those of axis 1 always may
    vector: int  # elements that divide lengths and strides of lines: those of one access
    ragged: bool  # rows start anywhere, alike in all operands: whole vectors are a row's body, what is left its two edges
    padded: bool  # the last tile reaches past its rows, so its columns are masked

    # What a program takes.
    tile_rows: int
    tile_cols: int
    pieces: int  # tensors that a tile's columns are in, a power of two each: Triton has no others
    held: bool  # a row, or a program's part of it, is read once and held; else twice, a piece at a time
    by_place: bool  # what is read twice has numbers for each place of a piece, which are reduced at the end
    walks: bool  # a program takes more than one tile
    stages: int  # of the loop over tiles
    last_alone: bool = False  # of rows that are read in pairs, the number is odd

    # Programs that share the rows of a tile.
    parts: int = 1  # programs, each of which has so much of a row
    words: int = 0  # 64-bit words in which those of one tile exchange numbers
    lanes: int = 1  # numbers of a look at all words: at least a program's threads, as its warps must see the same
    poll: str = "volatile"  # how a word is read anew; or "atomic"
    polls: int = 1  # how often at most, before a program finds what is missing by itself

    @property
    def turned(self) -> bool:
        """Tells whether y lies the other way than x: a tile is read in lines of one kind, and stored in the other."""
        return self.axis != self.out_axis

    @property
    def unit(self) -> int:
        """Elements that lengths and strides are counted in."""
        return 1 if self.ragged else self.vector

    @property
    def width(self) -> int:
        """Columns of a piece."""
        return self.tile_cols // self.pieces

    @property
    def one_row(self) -> bool:
        """Tells whether a tile has a single row, whose numbers are scalars."""
        return self.tile_rows == 1

    @property
    def parts_read(self) -> int:
        """Parts that a look at all words has room for."""
        return self.lanes // self.tile_rows

    @property
    def products(self) -> bool:
        """Tells whether a row's sum is one of products: that of a gradient, dy * y."""
        return self.backward and not self.log

    @property
    def lone_products(self) -> bool:
        """Tells whether such a sum is of one piece of a part: its products are rounded as those of `reduce_part`."""
        return self.products and self.pieces == 1 and self.parts > 1

    def in_float32(self) -> "Form":
        """Returns the form for operands of bfloat16 that were copied to float32."""
        return replace(self, rounded_to="float32") if self.rounded_to == "bfloat16" else self


class InKernel:
    """Form as kernels see it: its attributes are constexprs, as shapes and static ranges ask for; plain in the interpreter."""

    def __init__(self, form: Form) -> None:
        self.__dict__["form"] = form

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        import triton.language as tl

        from portable_softmax.kernels.exponents import INTERPRETED

        value = getattr(self.form, name)
        value = getattr(tl, value) if name in DTYPES else value
        return value if INTERPRETED else tl.constexpr(value)

    def __repr__(self) -> str:
        return repr(self.form)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, InKernel) and self.form == other.form

    def __hash__(self) -> int:
        return hash(self.form)


def constexpr_of(form: Form) -> InKernel:
    """Returns the value of a kernel's FORM. Triton before 3.4 does not look into constexprs, and learns it here."""
    import triton.language as tl

    if not hasattr(tl.constexpr, "__getattr__"):
        tl.constexpr.__getattr__ = _attribute
    return InKernel(form)


def _attribute(constant: Any, name: str) -> Any:
    if name == "value" or name.startswith("__"):
        raise AttributeError(name)
    return getattr(constant.value, name)
