"""Random calls in one process: options come and go, as do tensors and numbers, gradients, layouts, modes, batch_invariant.

Shapes are few, and a call differs in few choices from the one before, so that calls meet each other's launches, and a key
that lacks a fact is seen. Each call is compared with the same call in float64, which the reference computes; and with itself
as the first call of an empty dictionary, bit for bit, and in what is launched.
"""

import contextlib
import random
import sys

import torch

from portable_softmax import batch_invariant, log_softmax, softmax, token_log_probs
from portable_softmax.operators import launch
from portable_softmax.runtime import layout

SHAPES = (4, 4), (2, 4), (2, 3, 5), (3, 40)
STEPS = 16  # calls from one that is chosen anew to the next
ERRORS = {torch.float32: 2e-5, torch.float16: 4e-3, torch.bfloat16: 3e-2}
MODES = "plain", "plain", *("grad",) * 3, "no_grad", "inference", "out", "out", "autocast"


class Calls:
    """Makes calls, checks them, and prints those that failed.

    Args:
        seed: of all choices.
        device: where tensors are.
    """

    def __init__(self, seed, device="cpu"):
        self.seed, self.at, self.places, self.device = seed, 0, {}, torch.device(device)
        self.failures, self.launched, self.results = [], [], []

    def run(self, count, first=0):
        """Makes so many calls; returns those that failed, as text."""
        with recording(self.launched):
            for at in range(first, first + count):
                try:
                    self.one(at)
                except Exception as error:
                    text = str(error).replace("\n", " ")[:300]
                    self.failures.append(f"call {at}: {self.text}: {type(error).__name__}: {text}")
        return self.failures

    def one(self, at):
        """Makes the call of that number: of a function with options, in a mode; checks its results and gradients."""
        self.at, self.places = at, {}
        torch.manual_seed(random.Random(f"{self.seed} {at}").randrange(2**60))
        self.launched.clear()
        self.results.clear()
        shape, mode = self.pick(SHAPES), self.pick(MODES)
        function = self.pick(("softmax", "log_softmax", "log_probs", "softmax"))
        dtype, dim = self.pick((torch.float32,) * 4 + (torch.bfloat16, torch.float16)), self.pick((-1, -1, -1, 0))
        mode = "in place" if mode == "out" and self.chance(0.5) else mode
        mode = "plain" if function == "log_probs" and mode in ("out", "in place") else mode
        x = self.layout(self.normal(shape).mul(2).to(dtype))
        more = self.log_probs if function == "log_probs" else self.scores
        options = self.factors(shape, dim) | more(shape, dim, dtype, mode)
        invariant = self.chance(0.3)
        shown = {name: (tuple(o.shape), o.dtype) if isinstance(o, torch.Tensor) else o for name, o in options.items()}
        self.text = f"{function} {mode} {shape} {dtype} dim {dim} invariant {invariant} {shown}"
        with batch_invariant() if invariant else contextlib.nullcontext():
            (self.recorded if mode == "grad" else self.computed)(function, mode, x, dim, options)

    def computed(self, function, mode, x, dim, options):
        """Checks results of a call that autograd does not record."""

        def call(x, **more):
            if mode == "in place":
                x = x.clone(memory_format=torch.preserve_format)
                return results(function, x, dim, **options, out=x)
            return results(function, x, dim, **options, **more)

        more = {}
        if mode == "no_grad":
            x.requires_grad_()
        if mode == "out":
            more = {"out": self.layout(torch.empty(x.shape, dtype=x.dtype, device=x.device))}
        around = {"no_grad": torch.no_grad(), "inference": torch.inference_mode()}.get(mode, contextlib.nullcontext())
        around = torch.autocast(x.device.type, dtype=torch.bfloat16) if mode == "autocast" else around
        with around:
            actual = self.as_first(lambda: call(x, **more))
        assert not any(y.requires_grad for y in actual), "a call that is not recorded"
        error = max(ERRORS[x.dtype], ERRORS[options.get("dtype", x.dtype)])
        for ours, double in zip(actual, in_double(function, x, dim, options), strict=True):
            close(ours, double, error, "result")

    def as_first(self, call):
        """Returns the results of a call, which launches what it does as a first call, for the same bits."""
        actual, *seen = self.seen(call, launch.calls)
        _, *first = self.seen(call, {})
        assert_same(seen, first)
        self.results += seen[1]
        return actual

    def seen(self, call, dictionary):
        """Returns results with a dictionary of launches, their types, their bits, and what was launched."""
        self.launched.clear()
        kept, launch.calls = launch.calls, dictionary
        try:
            ys = call()
        finally:
            launch.calls = kept
        kinds = [y if y is None else (y.dtype, y.shape, y.requires_grad) for y in ys]
        return ys, kinds, [y if y is None else y.detach().clone() for y in ys], list(self.launched)

    def in_both_orders(self, calls):
        """Checks that calls one after another, and in the reverse order, are as first calls."""
        first = [self.seen(call, {})[1:] for call in calls]
        for order in (1, -1):
            dictionary = {}
            for call, expected in list(zip(calls, first, strict=True))[::order]:
                assert_same(self.seen(call, dictionary)[1:], expected)

    def recorded(self, function, mode, x, dim, options):
        """Checks results and gradients of inputs, some of which need one."""
        names = [name for name, o in options.items() if name != "ids" and isinstance(o, torch.Tensor) and o.is_floating_point()]
        names = [name for name in names if self.chance(0.5)]
        in_place = function == "log_probs" and self.chance(0.3)
        ours, before = [t.detach().requires_grad_() for t in (x, *(options[name] for name in names))], x.clone()
        double = [leaf.detach().clone().requires_grad_() for leaf in ours]
        more = {"grad_inplace": True} if in_place else {}
        # What the gradient is written over belongs to one call.
        inputs = [ours[0] * 1 if in_place else ours[0] for _ in range(2)]
        tensors, again = options | dict(zip(names, ours[1:], strict=True)), iter(inputs)
        actual, other = [], []

        def call():
            ys = results(function, next(again), dim, **tensors, **more)
            (other if actual else actual).extend(ys)
            return ys

        self.as_first(call)
        exact = in_double(function, double[0], dim, options | dict(zip(names, double[1:], strict=True)))
        error = max(ERRORS[x.dtype], ERRORS[options.get("dtype", x.dtype)])
        for y, z in zip(actual, exact, strict=True):
            close(y.detach(), z.detach(), error, "result")
        if any(y.isnan().any() for y in exact):
            return
        weights = [self.normal(y.shape) for y in exact]
        finite = [y.isfinite() for y in exact]
        dys = [self.layout(torch.where(f, w, 0.0).to(y.dtype)) for f, w, y in zip(finite, weights, actual, strict=True)]

        def gradients(ys, leaves):
            used = [(y, dy.to(y.dtype)) for y, dy in zip(ys, dys, strict=True) if y.requires_grad]
            return torch.autograd.grad([y for y, _ in used], leaves, [dy for _, dy in used], allow_unused=True)

        again = iter((actual, other))
        pairs = [self.as_first(lambda: gradients(next(again), ours)), gradients(exact, double)]
        gradient, over = pairs[0][0], inputs[0].detach()
        if in_place and gradient is not None:
            assert torch.equal(over.nan_to_num(), gradient.detach().nan_to_num()), "not in place"
        elif not in_place:
            assert torch.equal(over.nan_to_num(), before.nan_to_num()), "in place"
        for gradient, exact, leaf in zip(*pairs, double, strict=True):  # beside the largest of each
            if exact is not None:
                gradient = torch.zeros_like(exact) if gradient is None else gradient
                largest = max(1.0, exact.abs().max().item())
                close(gradient / largest, exact / largest, max(10 * error, 10 * ERRORS[leaf.dtype]), "gradient")

    def factors(self, shape, dim):
        """Returns scale, temperature and softcap, those that there are."""
        options = {}
        if self.chance(0.5):
            if self.chance(0.4):
                options["scale"] = self.number_or_rows(shape, dim, (0.5, 2.0, -1.5))
            if self.chance(0.4):
                options["temperature"] = self.number_or_rows(shape, dim, (0.5, 1.0, 0.0, -1.5), greedy=True)
            if self.chance(0.3):
                options["softcap"] = self.pick((1.5, 30.0))
        return options

    def number_or_rows(self, shape, dim, numbers, greedy=False):
        """Returns a number, or one for each row in some shape and type."""
        if self.chance(0.5):
            return self.pick(numbers)
        rows = [1 if at == dim % len(shape) or self.chance(0.2) else size for at, size in enumerate(shape)]
        factor = self.uniform(rows) + 0.5
        factor = torch.where(self.uniform(rows) < 0.3, 0.0, factor) if greedy and self.chance(0.5) else factor
        return (-factor if self.chance(0.2) else factor).to(self.pick((torch.float32,) * 3 + (torch.bfloat16,)))

    def scores(self, shape, dim, dtype, mode):
        """Returns options of a softmax."""
        options = {}
        if self.chance(0.5):
            if self.chance(0.4):
                sizes = [size if self.chance(0.7) else 1 for size in shape]
                options["mask"] = self.mask(sizes, shape, dim)
            if self.chance(0.3) and dim == -1:
                options["causal"] = self.pick((True, "lower_right"))
            if self.chance(0.25):
                rows = [1 if at == dim % len(shape) else size for at, size in enumerate(shape)]
                options["sink"] = 0.5 if self.chance(0.5) else self.normal(rows)
            if self.chance(0.4):
                options["masked_rows"] = "zero"
        if self.chance(0.15) and mode not in ("out", "in place"):
            options["dtype"] = self.pick((torch.float32, torch.float16, torch.bfloat16))
        return options

    def mask(self, sizes, shape, dim):
        """Returns a mask: boolean, added, or in bits, whose sizes along dim are those of x."""
        kind, seen, added = self.pick(("bool", "added", "bits")), self.uniform(sizes), self.normal(sizes)
        if kind == "bits":
            words = torch.randint(-(2**31), 2**31, sizes, dtype=torch.int32, device=self.device)
            return self.layout(words.narrow(dim, 0, 1).repeat_interleave(-(-shape[dim] // 32), dim))
        added = torch.where(seen < 0.2, -torch.inf, added).to(self.pick((torch.float32, torch.bfloat16)))
        return self.layout(seen < 0.6 if kind == "bool" else added)

    def log_probs(self, shape, dim, dtype, mode):
        """Returns ids and options of log-probabilities."""
        dim = dim % len(shape)
        rows = (*shape[:dim], *shape[dim + 1 :], *self.pick(((), (), (1,), (3,))))
        ids = torch.randint(0, shape[dim], rows, device=self.device)
        ids = torch.where(self.uniform(rows) < self.pick((0.1, 0.6, 1.0)), -100, ids).to(self.pick((torch.int64, torch.int32)))
        more = {"entropy": self.chance(0.3), "return_lse": self.chance(0.3), "ignore_index": self.pick((-100, -100, 1))}
        if self.chance(0.4):
            sizes = [size if self.chance(0.7) else 1 for size in shape]
            rows = (*shape[:dim], *shape[dim + 1 :], 4)
            kept = torch.randint(-1, shape[dim], rows, device=self.device)
            more |= {"kept": kept} if self.chance(0.3) else {"mask": self.mask(sizes, shape, dim)}
            more |= {"masked_rows": self.pick(("nan", "zero"))}
        return {"ids": self.layout(ids), **more}

    def layout(self, x):
        """Returns a tensor as it is, transposed, unaligned, or with steps between elements."""
        way = int(self.draw() * 6)
        if way == 0 and x.dim() > 1:
            return x.transpose(0, -1).contiguous().transpose(0, -1)
        if way == 1:
            unaligned = torch.empty(x.numel() + 1, dtype=x.dtype, device=x.device)[1:].view(x.shape)
            return unaligned.copy_(x)
        return torch.stack([x, x], -1)[..., 0] if way == 2 else x

    def draw(self):
        """Returns a number from 0 to 1 for the place that calls: most often what it had for the call before."""
        frame, place = sys._getframe(1), []
        while frame.f_code is not Calls.one.__code__:
            place.append(frame.f_lasti)
            frame = frame.f_back
        place = f"{place} {frame.f_lasti}"
        self.places[place] = nth = self.places.get(place, 0) + 1
        at = self.at
        while (source := random.Random(f"{self.seed} {at} {place} {nth}")).random() > 0.06 and at % STEPS:
            at -= 1
        return source.random()

    def pick(self, choices):
        """Returns one of them."""
        return choices[int(self.draw() * len(choices))]

    def chance(self, probability):
        """True so often."""
        return self.draw() < probability

    def normal(self, shape):
        """Returns random numbers."""
        return torch.randn(shape, device=self.device)

    def uniform(self, shape):
        """Returns random numbers from 0 to 1."""
        return torch.rand(shape, device=self.device)


def assert_same(seen, first):
    """Raises AssertionError unless (types, results, launches) are those of a first call, bit for bit."""
    (kinds, ys, launched), (first_kinds, first_ys, first_launched) = seen, first
    assert kinds == first_kinds, f"{kinds}, and at first {first_kinds}"
    assert launched == first_launched, f"launched {launched}, and first {first_launched}"
    for y, again in zip(ys, first_ys, strict=True):
        assert y is again is None or torch.equal(y.nan_to_num(7e37), again.nan_to_num(7e37)), "other bits than at first"


@contextlib.contextmanager
def recording(launched):
    """Makes a context in which launches are appended to a list: what they compute, and sizes."""
    bound = layout.Launch

    class Recorded(bound):
        def __init__(self, problem, *rest, sizes=None, **named):
            super().__init__(problem, *rest, sizes=sizes, **named)
            self.computed = problem, sizes

        def __call__(self, *operands):
            launched.append(self.computed)
            super().__call__(*operands)

    layout.Launch = Recorded
    launch.calls.clear()
    try:
        yield
    finally:
        layout.Launch = bound


def results(function, x, dim, ids=None, **options):
    """Returns the results of a function, as a tuple."""
    if function == "log_probs":
        ys = token_log_probs(x, ids, dim=dim, **options)
        return ys if isinstance(ys, tuple) else (ys,)
    return ((softmax if function == "softmax" else log_softmax)(x, dim, **options),)


def in_double(function, x, dim, options):
    """Returns the results in float64, of an input that the result's type rounds first."""
    options = {n: o.double() if isinstance(o, torch.Tensor) and o.is_floating_point() else o for n, o in options.items()}
    rounded = options.pop("dtype", None)
    return results(function, (x.to(rounded) if rounded else x).double(), dim, **options)


def close(actual, exact, error, what):
    """Raises AssertionError unless results are close; float16 has no numbers beyond 65504."""
    actual, exact = actual.double(), exact.double()
    compared = (exact.abs() < 6e4) | exact.isnan()
    actual, exact = torch.where(compared, actual, 0.0), torch.where(compared, exact, 0.0)
    torch.testing.assert_close(actual, exact, rtol=error, atol=error, equal_nan=True, msg=lambda text: f"{what}: {text}")
