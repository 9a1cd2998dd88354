"""Random Triton kernels beside numpy: `random_kernel(seed)` returns a kernel with its arguments and the results by numpy.

A kernel has a chain of operations on blocks of all types, one block operation (a reduction, a scan, an atomic operation, a
loop, a product of matrices ...), and stores. All operations are exact, so results are equal to the bit.
"""

import linecache
import random
from typing import NamedTuple

import numpy as np
import triton
import triton.language as tl
from triton.compiler import ASTSource

BLOCK = 256
TYPES = {"int8": "i8", "uint8": "u8", "int16": "i16", "uint16": "u16", "int32": "i32", "uint32": "u32", "int64": "i64",
         "uint64": "u64", "float16": "fp16", "float32": "fp32", "float64": "fp64"}  # fmt: skip
INTEGERS = [name for name in TYPES if "int" in name]
WIDE = ["int32", "uint32", "int64", "uint64"]
FLOATS = [name for name in TYPES if "float" in name]
COMPARISONS = {"<": np.less, "<=": np.less_equal, ">": np.greater, ">=": np.greater_equal, "==": np.equal, "!=": np.not_equal}


class Value(NamedTuple):
    """A block of a kernel: the name, and the numbers by numpy."""

    name: str
    array: np.ndarray

    @property
    def kind(self):
        return self.array.dtype.name

    @property
    def has_nan(self):
        return np.isnan(self.array.astype(np.float64)).any()


class RandomKernel:
    """A kernel: its source, the arguments by name, and the expected array of each result."""

    def __init__(self, seed):
        self.seed, self.chance, self.numbers = seed, random.Random(seed), np.random.default_rng(seed)
        self.num_warps = self.chance.choice((1, 1, 2, 4))
        self.lines, self.arguments, self.expected, self.values = [], {}, {}, []
        for _ in range(self.chance.randint(2, 4)):
            self.load(self.chance.choice(list(TYPES)))
        with np.errstate(all="ignore"):
            for _ in range(self.chance.randint(3, 8)):
                self.chance.choice((self.arithmetic, self.arithmetic, self.bits, self.choice, self.conversion))()
            self.chance.choice((self.reduction, self.scan, self.atomic, self.loop, self.rearranged, self.product))()
        for value in {id(value): value for value in (*self.values[-3:], self.chance.choice(self.values))}.values():
            self.store(value)

    @property
    def source(self):
        header = f"def kernel({', '.join(self.arguments)}, BLOCK: tl.constexpr):"
        return "\n    ".join([header, "at = tl.arange(0, BLOCK)", *self.lines]) + "\n"

    def compiled(self, target):
        """Returns what Triton compiles for a target."""
        file, names = f"<random kernel {self.seed}>", {"tl": tl}
        linecache.cache[file] = len(self.source), None, self.source.splitlines(keepends=True), file
        exec(compile(self.source, file, "exec"), names)
        names["kernel"].__module__ = __name__
        signature = {name: f"*{TYPES[array.dtype.name]}" for name, array in self.arguments.items()} | {"BLOCK": "constexpr"}
        options = {"num_warps": self.num_warps, "enable_fp_fusion": False}
        source = ASTSource(triton.jit(names["kernel"]), signature, {(len(self.arguments),): BLOCK})
        return triton.compile(source, target, options)

    # inputs and results

    def load(self, kind):
        name = f"in{len(self.arguments)}"
        self.arguments[name] = self.drawn(kind)
        return self.say(f"tl.load({name} + at)", self.arguments[name].copy())

    def drawn(self, kind, size=BLOCK):
        if kind in FLOATS:
            return self.numbers.normal(size=size).astype(kind)
        limits = np.iinfo(kind)
        whole = self.numbers.integers(limits.min, limits.max, size, kind, endpoint=True)
        small = self.numbers.integers(0, 12, size).astype(kind)
        ends = np.array([limits.min, limits.max, 0, 1], kind)[self.numbers.integers(0, 4, size)]
        return np.choose(self.numbers.integers(0, 3, size), [whole, small, ends]).astype(kind)

    def store(self, value, where="at", size=BLOCK):
        kind = "int8" if value.kind == "bool" else value.kind
        name = f"out{len(self.arguments)}"
        self.arguments[name] = np.zeros(size, kind)
        self.expected[name] = value.array.astype(kind)
        self.lines.append(f"tl.store({name} + {where}, {value.name})")

    def say(self, text, array):
        value = Value(f"v{len(self.values)}", np.asarray(array))
        self.lines.append(f"{value.name} = {text}")
        self.values.append(value)
        return value

    def some(self, kinds=None):
        """Returns a value of one of the types; loads one where there is none."""
        fitting = [v for v in self.values if (not kinds or v.kind in kinds) and v.kind != "bool"]
        return self.chance.choice(fitting) if fitting else self.load(self.chance.choice(kinds or list(TYPES)))

    def like(self, value):
        """Returns another value of the same type."""
        others = [v for v in self.values if v.kind == value.kind and v is not value]
        return self.chance.choice(others) if others else self.load(value.kind)

    # operations

    def arithmetic(self):
        a = self.some()
        b = self.like(a)
        x, y = a.array, b.array
        sign = self.chance.choice(
            ("+", "-", "*", "max", "min", "abs", *(("//", "%") if a.kind in INTEGERS else ("floor", "ceil")))
        )
        if sign in ("max", "min"):
            self.say(f"tl.{sign}imum({a.name}, {b.name})", (np.fmax if sign == "max" else np.fmin)(x, y))
        elif sign in ("abs", "floor", "ceil"):
            if a.kind in FLOATS and (a.kind != "float16" or sign == "abs"):
                self.say(f"tl.{sign}({a.name})", getattr(np, sign)(x))
        elif sign in ("//", "%"):
            y = y & np.array(127, a.kind) | np.array(1, a.kind)
            divisor = self.say(f"({b.name} & 127 | 1).to(tl.{a.kind})", y)
            quotient = (np.abs(x.astype(object)) // y.astype(object)) * np.where(x < 0, -1, 1)
            exact = quotient if sign == "//" else x.astype(object) - quotient * y.astype(object)
            self.say(f"{a.name} {sign} {divisor.name}", exact.astype(x.dtype))
        else:
            self.say(f"{a.name} {sign} {b.name}", {"+": x + y, "-": x - y, "*": x * y}[sign])

    def bits(self):
        a = self.some(INTEGERS)
        b = self.like(a)
        sign = self.chance.choice(("&", "|", "^", "<<", ">>", "~"))
        if sign == "~":
            self.say(f"~{a.name}", ~a.array)
        elif sign in ("&", "|", "^"):
            exact = {"&": a.array & b.array, "|": a.array | b.array, "^": a.array ^ b.array}[sign]
            self.say(f"{a.name} {sign} {b.name}", exact)
        else:
            width = a.array.itemsize * 8 - 1
            count = self.say(f"({b.name} & {width}).to(tl.{a.kind})", b.array & np.array(width, a.kind))
            self.say(f"{a.name} {sign} {count.name}", a.array << count.array if sign == "<<" else a.array >> count.array)

    def choice(self):
        a, c = self.some(), self.some()
        b, d = self.like(a), self.like(c)
        sign = self.chance.choice(list(COMPARISONS))
        chosen = self.say(f"{a.name} {sign} {b.name}", COMPARISONS[sign](a.array, b.array))
        self.say(f"tl.where({chosen.name}, {c.name}, {d.name})", np.where(chosen.array, c.array, d.array))

    def conversion(self):
        a, kind = self.some(), self.chance.choice(list(TYPES))
        if a.kind in FLOATS and kind in INTEGERS:
            limit = 100 if kind[0] == "i" else 0
            near = np.clip(np.nan_to_num(a.array), -limit, 100).astype(a.kind)
            text = f"tl.clamp(tl.where({a.name} == {a.name}, {a.name}, 0), {-limit}.0, 100.0).to(tl.{a.kind})"
            a = self.say(text, near)
        self.say(f"{a.name}.to(tl.{kind})", a.array.astype(kind))

    # block operations

    def reduction(self):
        name = self.chance.choice(("sum", "max", "min", "argmax", "argmin"))
        a = self.some(INTEGERS if name == "sum" else None)
        if a.has_nan:
            return
        if name == "sum":
            wide = {"int8": "int32", "int16": "int32", "uint8": "uint32", "uint16": "uint32"}
            total = a.array.sum(dtype=wide.get(a.kind, a.kind))
        else:
            total = getattr(np, name)(a.array)
        value = Value("total", np.full(BLOCK, total, np.int32 if name.startswith("arg") else None))
        self.lines.append(f"total = tl.full([BLOCK], 0, tl.{value.kind}) + tl.{name}({a.name}, 0)")
        self.store(value)

    def scan(self):
        a, reverse = self.some(WIDE), self.chance.choice((False, True))
        sums = (a.array[::-1] if reverse else a.array).cumsum(dtype=a.kind)
        self.say(f"tl.cumsum({a.name}, 0, reverse={reverse})", (sums[::-1] if reverse else sums).copy())

    def atomic(self):
        functions = {
            "add": np.add, "max": np.maximum, "min": np.minimum, "and": np.bitwise_and,
            "or": np.bitwise_or, "xor": np.bitwise_xor,
        }  # fmt: skip
        name = self.chance.choice((*functions, "xchg", "cas"))
        a, target = self.some(WIDE), f"cells{len(self.arguments)}"
        # Each cell once where the order counts; Triton 3.8 for gfx942 combines lanes of one address as unsigned numbers.
        places = BLOCK if name in ("xchg", "cas", "max", "min") else self.chance.choice((1, 4, BLOCK))
        start = self.drawn(a.kind, places)
        after, where = start.copy(), np.arange(BLOCK) % places
        if name in functions:
            functions[name].at(after, where, a.array)
            self.lines.append(f"tl.atomic_{name}({target} + at % {places}, {a.name})")
        elif name == "xchg":
            after = a.array.copy()
            self.say(f"tl.atomic_xchg({target} + at, {a.name})", start.copy())
        else:
            after = np.where(start == 0, a.array, start)
            self.say(f"tl.atomic_cas({target} + at, tl.full([BLOCK], 0, tl.{a.kind}), {a.name})", start.copy())
        self.arguments[target], self.expected[target] = start, after

    def loop(self):
        a, count = self.some(["int32", "int64", "uint32"]), self.load("int8")
        times, state = np.abs(count.array.astype(np.int32)) % 20, a.array.copy()
        self.lines += [
            f"left = tl.abs({count.name}.to(tl.int32)) % 20",
            f"state = {a.name}",
            "for turn in range(tl.max(left, 0)):",
            f"    state = tl.where(turn < left, (state * 3 + 1).to(tl.{a.kind}), state)",
        ]
        for turn in range(times.max()):
            state = np.where(turn < times, state * np.array(3, a.kind) + np.array(1, a.kind), state)
        self.store(Value("state", state))

    def rearranged(self):
        a, name = self.some(), self.chance.choice(("trans", "flip", "gather"))
        if name == "trans":
            order = np.arange(BLOCK).reshape(16, -1).T.reshape(-1)
            text = f"tl.reshape(tl.trans(tl.reshape({a.name}, [16, {BLOCK // 16}])), [BLOCK])"
        elif name == "flip":
            order, text = np.arange(BLOCK)[::-1], f"tl.flip({a.name}, 0)"
        else:
            places = self.load("int32")
            order = places.array & (BLOCK - 1)
            text = f"tl.gather({a.name}, {places.name} & {BLOCK - 1}, 0)"
        self.say(text, a.array[order])

    def product(self):
        """Of small integers, so that sums are exact in all types."""
        kind = self.chance.choice(("float16", "float32", "int8"))
        names = [f"m{len(self.arguments) + number}" for number in range(2)]
        a, b = (self.numbers.integers(-8, 9, (32, 32)).astype(kind) for _ in range(2))
        self.arguments |= dict(zip(names, (a.reshape(-1), b.reshape(-1)), strict=True))
        loads = ", ".join(f"tl.load({name} + rows * 32 + columns)" for name in names)
        precision = {"float32": ', input_precision="ieee"', "int8": ", out_dtype=tl.int32"}.get(kind, "")
        self.lines += [
            "rows, columns = tl.arange(0, 32)[:, None], tl.arange(0, 32)[None, :]",
            f"product = tl.dot({loads}{precision})",
        ]
        exact = (a.astype(np.int64) @ b.astype(np.int64)).reshape(-1)
        self.store(Value("product", exact.astype("int32" if kind == "int8" else "float32")), "rows * 32 + columns", 32 * 32)
