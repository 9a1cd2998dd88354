"""Random Triton kernels beside numpy: `random_kernel(seed)` returns a kernel with its arguments and the results by numpy.

A kernel has a chain of operations on blocks of all types, one block operation (a reduction, a scan, an atomic operation, a
loop, a product of matrices ...), and stores. Integers are equal to the bit. Numbers carry a bound of the error that operations
which hardware approximates leave (division, roots, exponentials); without one they are equal to the bit too.
"""

import linecache
import random
from dataclasses import dataclass, field

import numpy as np
import triton
import triton.language as tl
from triton.compiler import ASTSource

BLOCK = 256
TYPES = {"int8": "i8", "uint8": "u8", "int16": "i16", "uint16": "u16", "int32": "i32", "uint32": "u32", "int64": "i64",
         "uint64": "u64", "float16": "fp16", "float32": "fp32", "float64": "fp64"}  # fmt: skip
INTEGERS = [name for name in TYPES if "int" in name]
FLOATS = [name for name in TYPES if "float" in name]
COMPARISONS = {"<": np.less, "<=": np.less_equal, ">": np.greater, ">=": np.greater_equal, "==": np.equal, "!=": np.not_equal}


@dataclass
class Value:
    """A block of a kernel: the name, the numbers by numpy, and a bound of the error of each (0: exact)."""

    name: str
    array: np.ndarray
    error: np.ndarray | float = 0.0

    @property
    def kind(self):
        return self.array.dtype.name

    @property
    def exact(self):
        return not np.any(self.error)


@dataclass
class RandomKernel:
    """A kernel: its source, the arguments by name, and for each result the expected array and a bound of its error."""

    seed: int
    lines: list[str] = field(default_factory=list)
    arguments: dict[str, np.ndarray] = field(default_factory=dict)
    expected: dict[str, tuple[np.ndarray, np.ndarray | float]] = field(default_factory=dict)
    num_warps: int = 1

    @property
    def source(self):
        header = f"def kernel({', '.join(self.arguments)}, BLOCK: tl.constexpr):"
        return "\n    ".join([header, "at = tl.arange(0, BLOCK)", *self.lines]) + "\n"

    def compiled(self, target):
        """Returns what Triton compiles for a target."""
        file = f"<random kernel {self.seed}>"
        linecache.cache[file] = len(self.source), None, self.source.splitlines(keepends=True), file
        names = {"tl": tl}
        exec(compile(self.source, file, "exec"), names)
        names["kernel"].__module__ = __name__
        jitted = triton.jit(names["kernel"])
        signature = {name: f"*{TYPES[array.dtype.name]}" for name, array in self.arguments.items()} | {"BLOCK": "constexpr"}
        constants = {(len(self.arguments),): BLOCK}
        options = {"num_warps": self.num_warps, "enable_fp_fusion": False}
        return triton.compile(ASTSource(jitted, signature, constants), target, options)


def random_kernel(seed):
    """Returns the kernel of a seed."""
    return _Builder(seed).build()


class _Builder:
    def __init__(self, seed):
        self.seed, self.chance, self.numbers = seed, random.Random(seed), np.random.default_rng(seed)
        self.kernel = RandomKernel(seed, num_warps=self.chance.choice((1, 1, 2, 4)))
        self.values: list[Value] = []

    def build(self):
        for _ in range(self.chance.randint(2, 4)):
            self.load(self.chance.choice(list(TYPES)))
        with np.errstate(all="ignore"):
            for _ in range(self.chance.randint(3, 8)):
                self.chance.choice((self.arithmetic, self.arithmetic, self.bits, self.choice, self.conversion, self.function))()
            self.chance.choice((self.reduction, self.scan, self.atomic, self.loop, self.rearranged, self.product))()
        for value in {id(value): value for value in (*self.values[-3:], self.chance.choice(self.values))}.values():
            self.store(value)
        return self.kernel

    # inputs and results

    def load(self, kind):
        name = f"in{len(self.kernel.arguments)}"
        self.kernel.arguments[name] = self.drawn(kind)
        return self.say(f"tl.load({name} + at)", self.kernel.arguments[name].copy())

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
        name = f"out{len(self.kernel.arguments)}"
        self.kernel.arguments[name] = np.zeros(size, kind)
        self.kernel.expected[name] = value.array.astype(kind), value.error
        self.line(f"tl.store({name} + {where}, {value.name})")

    def line(self, text):
        self.kernel.lines.append(text)

    def say(self, text, array, error=0.0):
        value = Value(f"v{len(self.values)}", np.asarray(array), error)
        self.line(f"{value.name} = {text}")
        self.values.append(value)
        return value

    def some(self, kinds=None, exact=False):
        """Returns a value of one of the types; converts or loads one where there is none."""
        fitting = [v for v in self.values if (not kinds or v.kind in kinds) and (v.exact or not exact) and v.kind != "bool"]
        return self.chance.choice(fitting) if fitting else self.load(self.chance.choice(kinds or list(TYPES)))

    def like(self, value):
        """Returns another value of the same type."""
        others = [v for v in self.values if v.kind == value.kind and v is not value]
        return self.chance.choice(others) if others else self.load(value.kind)

    # operations

    def arithmetic(self):
        a = self.some()
        b = self.like(a)
        signs = ("+", "-", "*", "max", "min") + (("//", "%") if a.kind in INTEGERS else ("/",))
        sign = self.chance.choice(signs)
        x, y = a.array, b.array
        if sign in ("max", "min"):
            if not (a.exact and b.exact):
                return
            self.say(f"tl.{sign}imum({a.name}, {b.name})", (np.fmax if sign == "max" else np.fmin)(x, y))
        elif sign in ("//", "%"):
            y = y & np.array(127, a.kind) | np.array(1, a.kind)
            divisor = self.say(f"({b.name} & 127 | 1).to(tl.{a.kind})", y)
            quotient = (np.abs(x.astype(object)) // y.astype(object)) * np.where(x < 0, -1, 1)
            exact = quotient if sign == "//" else x.astype(object) - quotient * y.astype(object)
            self.say(f"{a.name} {sign} {divisor.name}", exact.astype(x.dtype))
        elif sign == "/":
            y = np.abs(y) + np.array(1, a.kind)
            divisor = self.say(f"(tl.abs({b.name}) + 1).to(tl.{a.kind})", y, b.error)
            result = x / y
            self.say(
                f"({a.name} / {divisor.name}).to(tl.{a.kind})",
                result,
                self.bound(result, 4) + a.error + np.abs(result) * b.error,
            )
        else:
            result = {"+": x + y, "-": x - y, "*": x * y}[sign]
            error = np.abs(x.astype(float)) * b.error + np.abs(y.astype(float)) * a.error if sign == "*" else a.error + b.error
            error = error + self.bound(result, 1) if np.any(error) else 0.0
            self.say(f"{a.name} {sign} {b.name}", result, error)

    def bound(self, result, ulps):
        size = np.finfo(result.dtype)
        return ulps * float(size.eps) * np.abs(result.astype(np.float64)) + 2 * float(size.tiny)

    def bits(self):
        a = self.some(INTEGERS)
        b = self.like(a)
        sign = self.chance.choice(("&", "|", "^", "<<", ">>", "~", "umulhi"))
        if sign == "~":
            self.say(f"~{a.name}", ~a.array)
        elif sign in ("&", "|", "^"):
            self.say(
                f"{a.name} {sign} {b.name}", {"&": a.array & b.array, "|": a.array | b.array, "^": a.array ^ b.array}[sign]
            )
        elif sign == "umulhi" and a.kind in ("int32", "uint32"):
            high = (a.array.astype(np.uint64) & 0xFFFFFFFF) * b.array.astype(np.uint32)
            self.say(f"tl.umulhi({a.name}.to(tl.uint32), {b.name}.to(tl.uint32))", (high >> 32).astype(np.uint32))
        elif sign in ("<<", ">>"):
            width = a.array.itemsize * 8 - 1
            count = self.say(f"({b.name} & {width}).to(tl.{a.kind})", b.array & np.array(width, a.kind))
            self.say(f"{a.name} {sign} {count.name}", a.array << count.array if sign == "<<" else a.array >> count.array)

    def choice(self):
        a = self.some(exact=True)
        b = self.like(a)
        if not b.exact:
            return
        sign = self.chance.choice(list(COMPARISONS))
        chosen = self.say(f"{a.name} {sign} {b.name}", COMPARISONS[sign](a.array, b.array))
        c = self.some()
        d = self.like(c)
        self.say(
            f"tl.where({chosen.name}, {c.name}, {d.name})",
            np.where(chosen.array, c.array, d.array),
            np.where(chosen.array, c.error, d.error),
        )

    def conversion(self):
        a = self.some()
        kind = self.chance.choice(list(TYPES))
        if a.kind in FLOATS and kind in INTEGERS:
            if not a.exact:
                return
            limit = 100 if kind[0] == "i" else 0
            near = np.clip(np.nan_to_num(a.array), -limit, 100).astype(a.kind)
            clipped = self.say(
                f"tl.clamp(tl.where({a.name} == {a.name}, {a.name}, 0), {-limit}.0, 100.0).to(tl.{a.kind})", near
            )
            self.say(f"{clipped.name}.to(tl.{kind})", near.astype(kind))
        elif a.kind in FLOATS and kind in FLOATS:
            result = a.array.astype(kind)
            self.say(f"{a.name}.to(tl.{kind})", result, a.error + self.bound(result, 1) if np.any(a.error) else 0.0)
        else:
            self.say(f"{a.name}.to(tl.{kind})", a.array.astype(kind))

    def function(self):
        a = self.some([*FLOATS, "float32"])
        name = self.chance.choice(("exp2", "log2", "sqrt", "rsqrt", "floor", "ceil", "abs", "exp", "sin", "cos", "erf", "fma"))
        x = a.array.astype(np.float64)
        if name == "abs":
            self.say(f"tl.abs({a.name})", np.abs(a.array), a.error)
        elif name in ("floor", "ceil"):
            if a.exact and a.kind != "float16":
                self.say(f"tl.{name}({a.name})", getattr(np, name)(a.array))
        elif a.kind == "float16" or not a.exact:
            return
        elif name in ("log2", "sqrt", "rsqrt"):
            positive = self.say(f"tl.abs({a.name}) + 1", np.abs(a.array) + np.array(1, a.kind))
            y = positive.array.astype(np.float64)
            result = {"log2": np.log2, "sqrt": np.sqrt, "rsqrt": lambda y: 1 / np.sqrt(y)}[name](y)
            self.approximate(f"tl.{name}({positive.name})", result, a.kind)
        elif name in ("exp2", "exp", "sin", "cos"):
            near = self.say(f"tl.clamp({a.name}, -8.0, 8.0).to(tl.{a.kind})", np.clip(a.array, -8, 8).astype(a.kind))
            self.approximate(f"tl.{name}({near.name})", getattr(np, name)(near.array.astype(np.float64)), a.kind)
        elif name == "fma" and a.kind == "float32":
            b = self.like(a)
            if b.exact:
                self.approximate(f"tl.fma({a.name}, {b.name}, {a.name})", x * b.array + x, a.kind)

    def approximate(self, text, result, kind):
        rounded = result.astype(kind)
        extra = 1e-6 if kind == "float32" else 1e-13  # near zeros of sin, cos and log2
        self.say(text, rounded, self.bound(rounded, 16) + extra)

    # block operations

    def reduction(self):
        a = self.some(exact=True)
        name = self.chance.choice(("sum", "max", "min", "argmax", "argmin"))
        if name == "sum":
            kind = {"int8": "int32", "int16": "int32", "uint8": "uint32", "uint16": "uint32"}.get(a.kind, a.kind)
            total = a.array.sum(dtype=kind if kind in INTEGERS else np.float64).astype(kind)
            error = 0.0 if kind in INTEGERS else float(np.finfo(kind).eps) * np.abs(a.array.astype(np.float64)).sum() * 4
        elif np.isnan(a.array.astype(np.float64)).any():
            return
        else:
            total, error = getattr(np, name)(a.array), 0.0
        value = Value("total", np.full(BLOCK, total, np.int32 if name.startswith("arg") else None), error)
        self.line(f"total = tl.full([BLOCK], 0, tl.{value.kind}) + tl.{name}({a.name}, 0)")
        self.store(value)

    def scan(self):
        a = self.some(["int32", "uint32", "int64", "uint64", "float32", "float64"], exact=True)
        reverse = self.chance.choice((False, True))
        array = a.array[::-1] if reverse else a.array
        sums = array.cumsum(dtype=a.kind if a.kind in INTEGERS else np.float64).astype(a.kind)
        error = 0.0 if a.kind in INTEGERS else 8 * float(np.finfo(a.kind).eps) * np.abs(array.astype(np.float64)).cumsum()
        if reverse:
            sums, error = sums[::-1], error[::-1] if np.ndim(error) else error
        self.say(f"tl.cumsum({a.name}, 0, reverse={reverse})", sums.copy(), error)

    def atomic(self):
        functions = {
            "add": np.add, "max": np.maximum, "min": np.minimum, "and": np.bitwise_and,
            "or": np.bitwise_or, "xor": np.bitwise_xor,
        }  # fmt: skip
        name = self.chance.choice((*functions, "xchg", "cas"))
        a, target = self.some(["int32", "uint32", "int64", "uint64"], exact=True), f"cells{len(self.kernel.arguments)}"
        # Each cell once where the order counts; Triton 3.8 for gfx942 combines lanes of one address as unsigned numbers.
        places = BLOCK if name in ("xchg", "cas", "max", "min") else self.chance.choice((1, 4, BLOCK))
        start = self.drawn(a.kind, places)
        after, where = start.copy(), np.arange(BLOCK) % places
        if name in functions:
            functions[name].at(after, where, a.array)
            self.line(f"tl.atomic_{name}({target} + at % {places}, {a.name})")
        elif name == "xchg":
            after = a.array.copy()
            self.say(f"tl.atomic_xchg({target} + at, {a.name})", start.copy())
        else:
            after = np.where(start == 0, a.array, start)
            self.say(f"tl.atomic_cas({target} + at, tl.full([BLOCK], 0, tl.{a.kind}), {a.name})", start.copy())
        self.kernel.arguments[target] = start
        self.kernel.expected[target] = after.astype(a.kind), 0.0

    def loop(self):
        a = self.some(["int32", "int64", "uint32"])
        count = self.load("int8")
        times = np.abs(count.array.astype(np.int32)) % 20
        self.line(f"turns = tl.max(tl.abs({count.name}.to(tl.int32)) % 20, 0)")
        self.line(f"left = tl.abs({count.name}.to(tl.int32)) % 20")
        self.line(f"state = {a.name}")
        self.line("for turn in range(turns):")
        self.line(f"    state = tl.where(turn < left, (state * 3 + 1).to(tl.{a.kind}), state)")
        state = a.array.copy()
        for turn in range(times.max()):
            state = np.where(turn < times, state * np.array(3, a.kind) + np.array(1, a.kind), state)
        self.store(Value("state", state))

    def rearranged(self):
        a = self.some()
        name = self.chance.choice(("trans", "flip", "gather"))
        if name == "trans":
            order = np.arange(BLOCK).reshape(16, -1).T.reshape(-1)
            text = f"tl.reshape(tl.trans(tl.reshape({a.name}, [16, {BLOCK // 16}])), [BLOCK])"
        elif name == "flip":
            order, text = np.arange(BLOCK)[::-1], f"tl.flip({a.name}, 0)"
        else:
            places = self.load("int32")
            order = places.array & (BLOCK - 1)
            text = f"tl.gather({a.name}, {places.name} & {BLOCK - 1}, 0)"
        self.say(text, a.array[order], np.broadcast_to(a.error, BLOCK)[order].copy())

    def product(self):
        kind = self.chance.choice(("float16", "float32", "int8"))
        names = [f"m{len(self.kernel.arguments) + number}" for number in range(2)]
        a, b = (self.drawn(kind, 32 * 32) for _ in range(2))
        self.kernel.arguments |= dict(zip(names, (a, b), strict=True))
        self.line("rows, columns = tl.arange(0, 32)[:, None], tl.arange(0, 32)[None, :]")
        loads = ", ".join(f"tl.load({name} + rows * 32 + columns)" for name in names)
        precision = {"float32": ', input_precision="ieee"', "int8": ", out_dtype=tl.int32"}.get(kind, "")
        self.line(f"product = tl.dot({loads}{precision})")
        left, right = (m.reshape(32, 32).astype(np.int64 if kind == "int8" else np.float64) for m in (a, b))
        error = 0.0 if kind == "int8" else (1e-5 * np.abs(left) @ np.abs(right)).reshape(-1)
        result = (left @ right).reshape(-1).astype(np.int32 if kind == "int8" else np.float32)
        self.store(Value("product", result, error), "rows * 32 + columns", 32 * 32)
