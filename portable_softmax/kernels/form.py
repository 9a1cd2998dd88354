"""Everything that a kernel is compiled for, as one constexpr: kernels read it as FORM.name.

A tensor consists of matrices of lines; the elements of a line are next to each other in memory. A line is a row, or it holds
the same column of neighbouring rows. So softmax along an inner dimension needs no transposed copy. A program takes tiles of
`tile_rows` rows and `tile_cols` columns, `tl.num_programs(0)` apart, so any number of programs is right.
"""

from dataclasses import dataclass, replace
from typing import Any

DTYPES = ("rounded_to", "counted_in")  # fields that name a type


@dataclass(frozen=True, kw_only=True)
class Form:
    """Everything that a kernel is compiled for, except the types of its operands. Properties follow from fields."""

    # What is computed.
    backward: bool  # computes dx from dy and y; else y from x
    log: bool  # log_softmax
    exact: bool  # exponentials and quotients to the last bit, for float32
    rounded_to: str  # type of y: an input is rounded to it first
    picks: str = ""  # "forward" ends with log-probabilities of chosen elements; "gradient" is theirs: see log_probs.py
    entropy: bool = False  # of each row too; a gradient: it has one
    lse: bool = False  # a gradient: logarithms of rows' sums have their own
    many: bool = False  # a gradient: rows have another number of chosen elements than one

    # How rows lie in memory.
    axis: int  # of a row's elements in a tile. 1: the elements of a row are neighbours in x, or dy; 0: those of a column are
    depth: int  # 1: one stride leads from line to line; 2: lines form matrices; 3: matrices form batches
    flat: bool  # the rows of a tile may lie in several matrices; always so for axis 1
    vector: int  # elements of one access; they divide the lengths and strides of lines
    unaligned: bool  # rows start anywhere, alike in all operands: a body of whole vectors between two edges
    padded: bool  # the last tile reaches past the end of its rows, so its columns are masked

    # What a program takes.
    tile_rows: int
    width: int  # columns of a block, a power of two: Triton has no other tensors
    blocks: int  # tensors that hold a tile's columns
    held: bool  # a row, or a split of it, is read once and held; else read twice, one block at a time
    accumulators: int  # columns of a block that keep numbers of their own, where it is read twice: those of different threads
    walks: bool  # a program takes more than one tile
    counted_in: str  # type in which tiles, and with axis 0 or scores matrices, are counted
    stages: int  # pipeline stages of the loop over tiles

    # Scores, of which the softmax is taken in place of x: see scores.py.
    scored: bool = False  # there are scores
    divides: bool = False  # x is divided by the factor of its row, else multiplied
    by_row: bool = False  # each row has a factor; else one positive number is that of all
    cap: float = 0.0  # of cap * tanh(cap_scale * x / cap)
    cap_scale: float = 1.0
    mask: str = ""  # "bool", or "added"
    mask_step: int = 1  # elements of it between neighbours of x, if 0 or 1; -1: a launch says
    mask_unit: int = 1  # elements in which its other strides are counted
    access: int = 1  # neighbours that a thread reads at once; they are read if the mask leaves any
    mask_shared: bool = False  # by the matrices of a batch: tiles take the same rows of each in turn, so a cache has their mask
    causal: str = ""  # "upper_left", or "lower_right"
    sink: bool = False  # each row has one more logit
    zero_rows: bool = False  # rows without a score give 0, else nan
    hides: bool = False  # a gradient: elements of weight 0 get 0, as scores may be -inf
    voids: bool = False  # a gradient: those of rows that are nan too, as these may be hidden whole

    # Programs that share the rows of a tile.
    splits: int = 1  # of each row: one for each program of a tile
    slots: int = 0  # 64-bit words in which the programs of one tile exchange numbers
    lanes: int = 1  # numbers of one look, at least one per thread: all warps take part, so all see the same
    poll: str = "volatile"  # how a look reads a word: by a "volatile" load or an "atomic" operation
    polls: int = 1  # looks, at most; then the program computes the missing numbers itself

    @property
    def kernel_name(self) -> str:
        """Returns the name that profilers see."""
        if self.picks:
            return "log_probs_backward_kernel" if self.picks == "gradient" else "log_probs_kernel"
        return f"{'scored' if self.scored else 'softmax'}{'_backward' if self.backward else ''}_kernel"

    @property
    def unit(self) -> int:
        """Returns the number of elements in which lengths and strides are counted."""
        return 1 if self.unaligned else self.vector

    @property
    def tile_cols(self) -> int:
        """Returns the number of columns of a tile, or of a program's split of it."""
        return self.blocks * self.width

    @property
    def one_row(self) -> bool:
        """Tells whether a tile has a single row, whose numbers are then scalars."""
        return self.tile_rows == 1

    @property
    def splits_read(self) -> int:
        """Returns how many splits one look at all words can read."""
        return self.lanes // self.tile_rows

    @property
    def products(self) -> bool:
        """Tells whether a row's sum is a sum of products: dy * y, for a gradient."""
        return self.backward and not self.log

    @property
    def lone_products(self) -> bool:
        """Tells whether a row's sum is a sum of products of one block of a split: these are rounded as in `reduce_split`."""
        return self.products and self.blocks == 1 and self.splits > 1

    @property
    def mask_by_row(self) -> bool:
        """Tells whether a mask has one element for each row, and rows have neighbouring elements."""
        return self.axis == 1 and self.mask_step == 0

    @property
    def selects(self) -> bool:
        """Tells whether elements that take no part are hidden one by one; else -inf was loaded in their place, and stays so."""
        return self.mask == "bool" or bool(self.causal) or self.cap != 0 or self.by_row

    @property
    def empty(self) -> bool:
        """Tells whether a row without a score has a result."""
        return self.sink or self.zero_rows

    @property
    def in_parts(self) -> bool:
        """Tells whether what is reduced may be all -inf and part of a row that is not, or of one that has a result."""
        return self.splits > 1 or self.empty or self.picks != ""

    def in_float32(self) -> "Form":
        """Returns the form for operands of bfloat16 that were copied to float32."""
        return replace(self, rounded_to="float32") if self.rounded_to == "bfloat16" else self


class InKernel:
    """A Form as kernels see it: its attributes are constexprs, for shapes and static ranges, but plain in the interpreter."""

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


def name_of(specialization: Any) -> str:
    """Returns the name of a kernel, as Triton asks for it."""
    name: str = specialization.constants["FORM"].form.kernel_name
    return name


def constexpr_of(form: Form) -> InKernel:
    """Returns the value of a kernel's FORM.

    Triton before 3.4 does not look up attributes of constexprs; this function teaches it.
    """
    import triton.language as tl

    constant = tl.constexpr
    if not hasattr(constant, "__getattr__"):
        constant.__getattr__ = _attribute
    return InKernel(form)


def _attribute(constant: Any, name: str) -> Any:
    if name == "value" or name.startswith("__"):
        raise AttributeError(name)
    return getattr(constant.value, name)
