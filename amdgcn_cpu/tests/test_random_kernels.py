"""Random kernels of Triton, executed for each architecture, beside numpy.

A kernel loads blocks of several types, combines them by operations of a table, some with atomics or matrices, and stores. All
operations are exact, so results are equal to the bit.
"""

import linecache
import random
from collections import Counter

import numpy as np
import pytest

from amdgcn_cpu import UnknownInstruction, run

triton = pytest.importorskip("triton", "3.2")
import triton.language as tl  # noqa: E402
from triton.backends.compiler import GPUTarget  # noqa: E402
from triton.compiler import ASTSource  # noqa: E402

ARCHITECTURES = ("gfx906", "gfx908", "gfx90a", "gfx942", "gfx950", "gfx1030", "gfx1100", "gfx1151", "gfx1200", "gfx1201")
BLOCK, AT_ONCE = 256, 10
MORE = [pytest.param(first, marks=pytest.mark.slow) for first in range(AT_ONCE, 1000, AT_ONCE)]
TYPES = {"int8": "i8", "uint8": "u8", "int16": "i16", "uint16": "u16", "int32": "i32", "uint32": "u32", "int64": "i64",
         "uint64": "u64", "float16": "fp16", "float32": "fp32", "float64": "fp64"}  # fmt: skip
ALL = list(TYPES)
INTEGERS, FLOATS, WIDE = ALL[:8], ALL[8:], ALL[4:8]


@triton.jit
def repeat(state, count):
    """A loop whose turns depend on the data."""
    for turn in range(tl.max(count, 0)):
        state = tl.where(turn < count, (state * 3 + 1).to(state.dtype), state)
    return state


def repeated(a, b):
    for turn in range(16):
        a = np.where(turn < (b & 15), a * np.array(3, a.dtype) + np.array(1, a.dtype), a)
    return a


def divided(a, b, remainder):
    """Returns the quotient, rounded to zero, or the remainder of a and the low bits of b, or 1."""
    x, y = a.astype(object), (b & 127 | 1).astype(object)
    quotient = abs(x) // y * np.where(a < 0, -1, 1)
    return (x - quotient * y if remainder else quotient).astype(a.dtype)


def shift(b):
    return b & np.array(8 * b.itemsize - 1, b.dtype)


def reduced(function):
    return lambda a, b: np.full(BLOCK, function(np.where(a == a, a, 0))).astype(a.dtype)


LOW_BITS = "({b} & 127 | 1).to({a}.dtype)"
SHIFT = "({b} & {a}.dtype.primitive_bitwidth - 1).to({a}.dtype)"
CHOOSE = {"<": np.less, "<=": np.less_equal, ">": np.greater, ">=": np.greater_equal, "==": np.equal, "!=": np.not_equal}
OPERATIONS = [  # of blocks a and b of one of the types, and where they are named c and d of any other one
    ("{a} + {b}", ALL, np.add),
    ("{a} - {b}", ALL, np.subtract),
    ("{a} * {b}", ALL, np.multiply),
    ("tl.maximum({a}, {b})", ALL, np.fmax),
    ("tl.minimum({a}, {b})", ALL, np.fmin),
    ("tl.abs({a})", FLOATS, lambda a, b: abs(a)),
    ("tl.floor({a})", FLOATS[1:], lambda a, b: np.floor(a)),
    ("tl.ceil({a})", FLOATS[1:], lambda a, b: np.ceil(a)),
    (f"{{a}} // {LOW_BITS}", INTEGERS, lambda a, b: divided(a, b, remainder=False)),
    (f"{{a}} % {LOW_BITS}", INTEGERS, lambda a, b: divided(a, b, remainder=True)),
    ("~{a}", INTEGERS, lambda a, b: ~a),
    ("{a} & {b}", INTEGERS, np.bitwise_and),
    ("{a} | {b}", INTEGERS, np.bitwise_or),
    ("{a} ^ {b}", INTEGERS, np.bitwise_xor),
    (f"{{a}} << {SHIFT}", INTEGERS, lambda a, b: a << shift(b)),
    (f"{{a}} >> {SHIFT}", INTEGERS, lambda a, b: a >> shift(b)),
    *((f"tl.where({{c}} {sign} {{d}}, {{a}}, {{b}})", ALL, lambda a, b, c, d, compare=compare: np.where(compare(c, d), a, b))
      for sign, compare in CHOOSE.items()),
    *((f"(zero + tl.{f.__name__}({numbers}, 0)).to({{a}}.dtype)", kinds, reduced(f))
      for f in (np.max, np.min, np.argmax, np.argmin)
      for numbers, kinds in (("{a}", INTEGERS), ("tl.where({a} == {a}, {a}, 0)", FLOATS))),
    ("(zero + tl.sum({a}, 0)).to({a}.dtype)", INTEGERS, lambda a, b: np.full(BLOCK, a.sum(dtype=a.dtype))),
    ("tl.cumsum({a}, 0)", WIDE, lambda a, b: a.cumsum(dtype=a.dtype)),
    ("tl.cumsum({a}, 0, reverse=True)", WIDE, lambda a, b: a[::-1].cumsum(dtype=a.dtype)[::-1]),
    ("tl.reshape(tl.trans(tl.reshape({a}, [16, 16])), [BLOCK])", ALL, lambda a, b: a.reshape(16, 16).T.reshape(-1)),
    ("tl.flip({a}, 0)", ALL, lambda a, b: a[::-1]),
    ("tl.gather({a}, {b} & BLOCK - 1, 0)", ["int32"], lambda a, b: a[b & BLOCK - 1]),
    ("repeat({a}, ({b} & 15).to(tl.int32))", ["int32", "int64", "uint32"], repeated),
]  # fmt: skip
ATOMICS = {"add": np.add, "max": np.maximum, "min": np.minimum, "and": np.bitwise_and, "or": np.bitwise_or,
           "xor": np.bitwise_xor, "xchg": lambda old, new: new,
           "cas": lambda old, new: np.where(old == 0, new, old)}  # fmt: skip


class RandomKernel:
    """A kernel: its source, the arguments by name, and the expected array of each result. Blocks are (name, numbers)."""

    def __init__(self, seed):
        self.seed, self.chance, self.numbers = seed, random.Random(seed), np.random.default_rng(seed)
        self.num_warps = self.chance.choice((1, 1, 2, 4))
        self.lines, self.arguments, self.expected = [], {}, {}
        with np.errstate(all="ignore"):
            for _ in range(2):
                self.store(*self.block(self.chance.choice(ALL), depth=3))
            self.chance.choice((self.atomic, self.product, dict, dict))()

    @property
    def source(self):
        header = f"def kernel({', '.join(self.arguments)}, BLOCK: tl.constexpr):"
        start = ["at = tl.arange(0, BLOCK)", "zero = tl.zeros([BLOCK], tl.int32)"]
        return "\n    ".join([header, *start, *self.lines]) + "\n"

    def compiled(self, target):
        """Returns what Triton compiles for a target."""
        file, names = f"<random kernel {self.seed}>", {"tl": tl, "repeat": repeat}
        linecache.cache[file] = len(self.source), None, self.source.splitlines(keepends=True), file
        exec(compile(self.source, file, "exec"), names)
        names["kernel"].__module__ = __name__
        signature = {name: f"*{TYPES[array.dtype.name]}" for name, array in self.arguments.items()} | {"BLOCK": "constexpr"}
        options = {"num_warps": self.num_warps, "enable_fp_fusion": False}
        source = ASTSource(triton.jit(names["kernel"]), signature, {(len(self.arguments),): BLOCK})
        return triton.compile(source, target, options)

    def block(self, kind, depth):
        """Returns a block of a type: loaded, converted, or the result of an operation."""
        if not depth:
            name = f"in{len(self.arguments)}"
            self.arguments[name] = self.drawn(kind)
            return self.say(f"tl.load({name} + at)", self.arguments[name])
        if self.chance.random() < 0.25:
            name, array = self.block(self.chance.choice(ALL), depth - 1)
            if array.dtype.name in FLOATS and kind in INTEGERS:
                least = -100 if kind[0] == "i" else 0
                name = f"tl.clamp(tl.where({name} == {name}, {name}, 0), {least}.0, 100.0)"
                array = np.clip(np.nan_to_num(array), least, 100)
            return self.say(f"{name}.to(tl.{kind})", array.astype(kind))
        text, _, exact = self.chance.choice([operation for operation in OPERATIONS if kind in operation[1]])
        deep = 0 if "tl.arg" in text else depth - 1  # Triton 3.8 returns places of a block ahead of a transposition of it
        blocks = {"a": self.block(kind, deep), "b": self.block(kind, 1)}
        if "{c}" in text:
            other = self.chance.choice(ALL)
            blocks |= {name: self.block(other, 0) for name in "cd"}
        names = {name: block[0] for name, block in blocks.items()}
        return self.say(text.format(**names), exact(*(array for _, array in blocks.values())))

    def say(self, text, array):
        name = f"v{len(self.lines)}"
        self.lines.append(f"{name} = {text}")
        return name, np.ascontiguousarray(array)

    def store(self, name, array, where="at"):
        result = f"out{len(self.arguments)}"
        self.arguments[result], self.expected[result] = np.zeros_like(array), array
        self.lines.append(f"tl.store({result} + {where}, {name})")

    def drawn(self, kind):
        if kind in FLOATS:
            return self.numbers.normal(size=BLOCK).astype(kind)
        limits = np.iinfo(kind)
        whole = self.numbers.integers(limits.min, limits.max, BLOCK, kind, endpoint=True)
        small = self.numbers.integers(0, 12, BLOCK).astype(kind)
        ends = self.numbers.choice(np.array([limits.min, limits.max, 0, 1], kind), BLOCK)
        return np.choose(self.numbers.integers(0, 3, BLOCK), [whole, small, ends])

    def atomic(self):
        """Each cell once; test_kernels.py adds to one from several programs."""
        name, (new, array) = self.chance.choice(list(ATOMICS)), self.block(self.chance.choice(WIDE), 1)
        cells, start = f"cells{len(self.arguments)}", self.drawn(array.dtype.name)
        words = f"tl.full([BLOCK], 0, tl.{start.dtype}), {new}" if name == "cas" else new
        self.store(*self.say(f"tl.atomic_{name}({cells} + at, {words})", start))
        self.arguments[cells], self.expected[cells] = start.copy(), ATOMICS[name](start, array)

    def product(self):
        """Of small integers, so that sums are exact in all types."""
        kind, wide = self.chance.choice((("float16", "float32"), ("float32", "float32"), ("int8", "int32")))
        a, b = (self.numbers.integers(-8, 9, (32, 32)).astype(kind) for _ in range(2))
        self.arguments |= {"m0": a.reshape(-1), "m1": b.reshape(-1)}
        place = "tl.arange(0, 32)[:, None] * 32 + tl.arange(0, 32)[None, :]"
        options = f'input_precision="ieee", out_dtype=tl.{wide}'
        name, _ = self.say(f"tl.dot(tl.load(m0 + {place}), tl.load(m1 + {place}), {options})", a)
        self.store(name, (a.astype(wide) @ b.astype(wide)).reshape(-1), place)


def outcome_of(kernel, arch):
    """Returns "right", "not compiled", "unknown" if an instruction is, or the results that differ from numpy's."""
    try:
        compiled = kernel.compiled(GPUTarget("hip", arch, 64 if arch.startswith("gfx9") else 32))
    except Exception:
        return "not compiled"
    arguments = {name: array.copy() for name, array in kernel.arguments.items()}
    sizes = {"num_warps": compiled.metadata.num_warps, "shared_bytes": compiled.metadata.shared}
    try:
        run(compiled.asm["amdgcn"], (1, 1, 1), list(arguments.values()), **sizes)
    except UnknownInstruction:
        return "unknown"
    pairs = {name: (arguments[name], exact) for name, exact in kernel.expected.items()}
    wrong = [name for name, pair in pairs.items() if not np.array_equal(*pair, equal_nan=pair[1].dtype.kind == "f")]
    return f"wrong {', '.join(wrong)}" if wrong else "right"


@pytest.mark.parametrize("first", [0, *MORE])
def test_random_kernels(first):
    counts = Counter()
    for seed in range(first, first + AT_ONCE):
        kernel, arch = RandomKernel(seed), ARCHITECTURES[seed % len(ARCHITECTURES)]
        outcome = outcome_of(kernel, arch)
        assert not outcome.startswith("wrong"), f"{outcome} of seed {seed} on {arch}:\n{kernel.source}"
        counts[outcome] += 1
    assert counts["unknown"] <= 2, counts
    assert counts["right"] >= AT_ONCE - 3, counts
