"""patch_torch: which calls of torch's functions come here, which stay torch's, and that torch is then as it was."""

import copy
import functools
import pickle
import subprocess
import sys
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor
from typing import ClassVar

import pytest
import torch
import torch._dynamo.testing
import torch.nn.functional as F
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from portable_softmax import patch_torch
from portable_softmax.api import functional as ops
from portable_softmax.api import patch, routed

pytestmark = pytest.mark.kernel

PLACES = [
    *((place, name) for place in (torch, torch.special, torch.Tensor, F) for name in ("softmax", "log_softmax")),
    (F, "softmin"),
]


def standing():
    """The functions in torch's places, each with True where it is not inherited."""
    return [(getattr(place, name), name in vars(place)) for place, name in PLACES]


@pytest.fixture(autouse=True)
def restored():
    before = standing()
    yield
    assert standing() == before


@pytest.fixture
def x(where):
    return torch.randn(3, 5, generator=torch.Generator().manual_seed(0)).to(where)


@pytest.fixture
def seen(monkeypatch):
    """The name of each function of this package that was called."""
    names = []
    monkeypatch.setattr(ops, "call", lambda form, *rest, call=ops.call: names.append(form) or call(form, *rest))
    return names


OURS = {
    "torch": lambda x: torch.softmax(x, 1),
    "by name": lambda x: torch.softmax(input=x, dim=1),
    "special": lambda x: torch.special.softmax(x, 1),
    "special, dtype": lambda x: torch.special.softmax(x, 1, torch.float64),
    "functional": lambda x: F.softmax(x, dim=1),
    "stack level": lambda x: F.softmax(x, 1, 3, torch.float64),
    "method": lambda x: x.softmax(-1),
    "module": lambda x: torch.nn.Softmax(1)(x),
    "log, torch": lambda x: torch.log_softmax(x, 1, dtype=torch.float16),
    "log, special": lambda x: torch.special.log_softmax(x, 1, dtype=torch.float64),
    "log, functional": lambda x: F.log_softmax(x, -1),
    "log, method": lambda x: x.log_softmax(dim=0),
    "softmin": lambda x: F.softmin(x, 1),
    "integers": lambda x: torch.softmax(x.int(), 1, torch.float32),
    "a parameter": lambda x: torch.softmax(torch.nn.Parameter(x), 1),
    "functional, guessed dim": lambda x: F.softmax(x),
}


@pytest.mark.filterwarnings("ignore:Implicit dimension")
@pytest.mark.parametrize("call", OURS.values(), ids=OURS)
def test_calls_that_come_here(x, seen, call):
    expected = call(x)
    with patch_torch():
        result = call(x)
    assert len(seen) == 1
    torch.testing.assert_close(result, expected)


class Units(torch.Tensor):
    """A subclass that notes what it is asked for."""

    asked: ClassVar = []

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        cls.asked.append(function)
        return super().__torch_function__(function, types, args, kwargs or {})


class Duck:
    """No tensor at all."""

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        return function


def two(x):
    from torch.testing._internal.two_tensor import TwoTensor

    return torch.softmax(TwoTensor(x, x), 1).a


def nested(x, **layout):
    return torch.softmax(torch.nested.nested_tensor([x, x[:2]], **layout), -1).unbind()[1]


def sharded(x):
    distributed = pytest.importorskip("torch.distributed")
    if not distributed.is_available():
        pytest.skip("this torch has no torch.distributed")
    from torch.distributed.tensor import DTensor, Shard, init_device_mesh
    from torch.testing._internal.distributed.fake_pg import FakeStore

    distributed.init_process_group("fake", store=FakeStore(), rank=0, world_size=1)
    try:
        result = F.softmax(DTensor.from_local(x, init_device_mesh(x.device.type, (1,)), [Shard(0)]), 1)
        assert isinstance(result, DTensor)
        return result.to_local()
    finally:
        distributed.destroy_process_group()


def out(x):
    result = torch.empty_like(x)
    return torch.softmax(x, 1, out=result)


def under_a_mode(x):
    class Nothing(TorchFunctionMode):
        def __torch_function__(self, function, types, args=(), kwargs=None):
            return function(*args, **(kwargs or {}))

    with Nothing():
        return torch.softmax(x, 1)


THEIRS = {
    "nested": nested,
    "jagged": lambda x: nested(x, layout=torch.jagged),
    "float8": lambda x: torch.softmax(x.to(torch.float8_e4m3fn), 1, dtype=torch.float32),
    "complex": lambda x: torch.softmax(x.to(torch.complex64), 1, torch.float32),
    "mkldnn": lambda x: torch.softmax(x.to_mkldnn(), 1).to_dense(),
    "coo": lambda x: torch.softmax(x.to_sparse(), 1),
    "csr": lambda x: torch.softmax(x.to_sparse_csr(), 1),
    "quantized": lambda x: torch.softmax(torch.quantize_per_tensor(x, 0.1, 0, torch.quint8), 1),
    "a torch-function subclass": lambda x: torch.softmax(x.as_subclass(Units), 1),
    "its method": lambda x: x.as_subclass(Units).softmax(1),
    "its functional": lambda x: F.log_softmax(x.as_subclass(Units), 1),
    "a torch-dispatch subclass": two,
    "a DTensor": sharded,
    "an object that is no tensor": lambda x: F.softmax(Duck(), 1),
    "integers without a dtype": lambda x: torch.softmax(x.int(), 1),
    "an integer dtype": lambda x: torch.softmax(x, 1, torch.int32),
    "out": out,
    "meta": lambda x: torch.softmax(x.to("meta"), 0),
    "a name of a dim": lambda x: torch.softmax(x, "rows"),
    "dim None": lambda x: torch.softmax(x, None),
    "dim True": lambda x: torch.softmax(x, True),
    "numpy's name of dim": lambda x: torch.softmax(x, axis=1),
    "a dim that is a tensor": lambda x: torch.softmax(x, torch.tensor(1)),
    "no dim": lambda x: torch.softmax(x),
    "dim twice": lambda x: torch.softmax(x, 1, dim=1),
    "too many": lambda x: torch.softmax(x, 1, None, None),
    "a positional dtype that special does not take": lambda x: torch.special.log_softmax(x, 1, torch.float32),
    "a dtype that is none": lambda x: torch.softmax(x, 1, "float32"),
    "a list": lambda x: torch.softmax([1.0], 0),
    "nothing": lambda x: torch.softmax(),
    "a function mode": under_a_mode,
    "a method's stack level": lambda x: x.softmax(1, _stacklevel=5),
    "a method's input by name": lambda x: torch.Tensor.log_softmax(input=x, dim=1),
    "a stack level": lambda x: torch.softmax(x, 1, _stacklevel=5),
    "special, a stack level": lambda x: torch.special.log_softmax(x, 1, _stacklevel=5),
}


def outcome(call, x):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return call(x)
        except Exception as error:
            return type(error), str(error)


@pytest.mark.parametrize("call", THEIRS.values(), ids=THEIRS)
def test_calls_that_stay_torchs(where, x, seen, call):
    """With the same results, bit by bit, and the same errors, word by word."""
    if call is THEIRS["mkldnn"] and where.type != "cpu":
        pytest.skip("mkldnn tensors are on the CPU")
    expected = outcome(call, x)
    with patch_torch():
        result = outcome(call, x)
    assert not seen
    if not isinstance(expected, torch.Tensor):
        assert result == expected
    elif not expected.is_meta:
        assert torch.equal(result, expected)
    assert type(result) is type(expected)


def test_subclasses_and_modes_see_torchs_own_functions(x):
    asked = []

    class Noting(TorchFunctionMode):
        def __torch_function__(self, function, types, args=(), kwargs=None):
            asked.append(function)
            return function(*args, **(kwargs or {}))

    def ask():
        asked.clear()
        Units.asked = asked
        for each in (torch.softmax, F.softmax, torch.special.softmax, torch.Tensor.softmax):
            each(x.as_subclass(Units), 1)
        with Noting():
            for each in (torch.softmax, torch.special.softmax, torch.Tensor.softmax):
                each(x, 1)
        return list(asked)

    expected = ask()
    assert len(expected) == 4 + 3
    with patch_torch():
        assert ask() == expected


def test_dispatch_modes_and_a_default_device_do_not_keep_calls_from_here(where, x, seen):
    class Noting(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            operators.append(function)
            return function(*args, **(kwargs or {}))

    operators = []
    with patch_torch(), Noting():
        torch.softmax(x, 1)
    assert torch.ops.portable_softmax.softmax.default in operators
    assert seen == ["softmax"]
    with patch_torch(), torch.device(where):
        torch.softmax(x, 1)
        assert seen == ["softmax"] * 2
        compiled, graphs = graphs_of(OURS["torch"])
        compiled(x)
    assert graphs == [["portable_softmax.softmax.default"]]


def test_contexts_end_in_any_order(x, seen):
    first, second, third = patch_torch(), patch_torch(), patch_torch()
    before = standing()
    for step, active in (
        (first.__enter__, True),
        (second.__enter__, True),
        (lambda: first.__exit__(None, None, None), True),
        (third.__enter__, True),
        (lambda: second.__exit__(None, None, None), True),
        (lambda: third.__exit__(None, None, None), False),
    ):
        step()
        torch.softmax(x, 1)
        assert bool(seen) == active
        assert (standing() == before) != active
        seen.clear()


def test_a_context_that_fails_or_is_forgotten_ends(x):
    before = standing()
    with pytest.raises(KeyError), patch_torch():
        raise KeyError
    assert standing() == before
    forgotten = patch_torch()
    forgotten.__enter__()
    del forgotten
    assert standing() == before


def test_contexts_in_threads(x):
    """Each begins and ends many; in one that is active torch is never torch's, and after all it is."""
    before, failures = standing(), []
    together = threading.Barrier(4)

    def contexts(turn):
        together.wait()
        for _ in range(300):
            with patch_torch():
                if torch.softmax is before[0][0] or not routed.routing:
                    failures.append(turn)

    threads = [threading.Thread(target=contexts, args=(turn,)) for turn in range(4)]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    sys.setswitchinterval(interval)
    assert not failures
    assert standing() == before


def test_a_context_is_active_in_threads_that_run_already(x, seen):
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(bool, 1).result()
        with patch_torch():
            pool.submit(lambda: torch.softmax(x, 1)).result()
    assert seen == ["softmax"]


def standing_now():
    return [getattr(place, name) for place, name in PLACES]


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.act, self.partial = torch.softmax, functools.partial(F.softmax, dim=-1)
        self.layer = torch.nn.TransformerEncoderLayer(8, 2, 16, activation=self.partial, dropout=0.0, batch_first=True)
        self.layers = torch.nn.TransformerEncoder(self.layer, 2, enable_nested_tensor=False)

    def forward(self, x):
        return self.layers(self.partial(self.act(x, 1)))


LOAD = "import sys; sys.modules['portable_softmax'] = None; import pickle; print(*map(repr, pickle.load(sys.stdin.buffer)))"


def test_what_is_fetched_inside_is_torchs_own_afterwards_in_copies_and_in_pickles(x, seen):
    with patch_torch():
        fetched, model = standing_now(), Model()
        fetched[0](x, 1)
        inside = [pickle.dumps(fetched, protocol) for protocol in (0, 2, pickle.HIGHEST_PROTOCOL)]
        assert pickle.loads(inside[0]) == copy.copy(fetched) == copy.deepcopy(fetched) == fetched, "what stands there"
        saved = pickle.dumps(model)
        for each in (torch.softmax, torch.Tensor.softmax):
            assert pickle.loads(pickle.dumps(each)) is each
        with pytest.raises(pickle.PicklingError, match=r"not the same object as torch\.nn\.functional"):
            pickle.dumps(F.softmax.__wrapped__)  # pickle finds by name what stands there instead
    fetched[0](x, 1)
    assert seen == ["softmax"]
    for pickled in (*inside, pickle.dumps(fetched)):
        assert pickle.loads(pickled) == standing_now() != fetched
    loaded = pickle.loads(saved)
    assert (loaded.act, loaded.partial.func) == (torch.softmax, F.softmax)
    x = torch.randn(3, 8)
    torch.testing.assert_close(loaded(x), model(x))
    told = subprocess.run([sys.executable, "-c", LOAD], input=inside[1], capture_output=True, check=True).stdout.decode()
    assert (told.count("softm"), "bound" in told) == (len(PLACES), False)


def test_what_others_put_in_place_meanwhile_stays(x, monkeypatch):
    context = patch_torch()
    context.__enter__()
    theirs = lambda *arguments: "theirs"  # noqa: E731
    monkeypatch.setattr(torch, "softmax", theirs)
    context.__exit__(None, None, None)
    assert torch.softmax is theirs
    monkeypatch.undo()
    assert torch.equal(torch.softmax(x, 1), F.softmax(x, 1)), "what it stood for in the context is torch's again"
    torch.softmax = patch._PLACES[0][2].__wrapped__


COMPILED = {"torch": OURS["torch"], "functional": OURS["functional"], "special": OURS["special"], "module": OURS["module"]}


def graphs_of(function, backend="eager"):
    """The compiled function, and the calls of softmax in each graph that is made of it."""
    graphs = []

    def note(graph, inputs):
        graphs.append([str(node.target) for node in graph.graph.nodes if "softmax" in str(node.target)])
        return torch._dynamo.lookup_backend(backend)(graph, inputs)

    torch._dynamo.reset()
    return torch.compile(lambda x: function(x * 2) + 1, backend=note, fullgraph=True), graphs


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("call", COMPILED.values(), ids=COMPILED)
def test_compiled_code_without_graph_breaks(x, call, backend):
    """One graph for calls inside, and one for those outside, whichever comes first."""
    expected = torch.softmax(x * 2, 1) + 1
    for order in ((True, False, True, False), (False, True, False, True)):
        compiled, graphs = graphs_of(call, backend)
        for inside in order:
            if inside:
                with patch_torch(), patch_torch():
                    result = compiled(x)
            else:
                result = compiled(x)
            torch.testing.assert_close(result, expected)
        assert [graph == ["portable_softmax.softmax.default"] for graph in graphs] == list(order[:2])


def test_compiled_methods_keep_what_they_were(x):
    operators = []

    def note(graph, inputs):
        operators.append([str(node.target) for node in graph.graph.nodes if "softmax" in str(node.target)])
        return graph

    from torch._dynamo.backends.common import aot_autograd

    backend = aot_autograd(fw_compiler=lambda graph, inputs: note(graph, inputs).forward)
    for inside in (True, False):
        torch._dynamo.reset()
        compiled = torch.compile(lambda x: x.softmax(1) + 1, backend=backend, fullgraph=True)
        if inside:
            with patch_torch():
                compiled(x)
        torch.testing.assert_close(compiled(x), torch.softmax(x, 1) + 1)
    assert operators == [["portable_softmax.softmax.default"], ["aten._softmax.default"]]


FIRST_READ_INSIDE = """
import sys, torch
from portable_softmax import patch_torch
x, function = torch.randn(3, 5), lambda x: torch.softmax(x * 2, 1) + 1
assert "torch._dynamo" not in sys.modules
with patch_torch():
    torch.overrides.get_overridable_functions()
assert torch.Tensor.softmax in torch.overrides.get_overridable_functions()[torch.Tensor]
for backend in ("eager", "aot_eager"):
    with patch_torch():
        torch.testing.assert_close(torch.compile(function, fullgraph=True, backend=backend)(x), function(x))
    torch._dynamo.reset()
    compiled = torch.compile(function, fullgraph=True, backend=backend)
    torch.testing.assert_close(compiled(x), function(x))
    with patch_torch():  # as torch.distributed.init_process_group does
        torch._dynamo.trace_rules.clear_lru_cache()
        torch._dynamo.reset()
        torch.compile(function, fullgraph=True, backend=backend)(x)
    torch._dynamo.reset()
    torch.testing.assert_close(compiled(x), function(x))
"""


@pytest.mark.slow
def test_tables_that_torch_first_reads_inside_hold_its_own_functions_afterwards(where):
    if where.type != "cpu":
        pytest.skip("the process of its own uses tensors on the CPU")
    done = subprocess.run([sys.executable, "-c", FIRST_READ_INSIDE], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def model():
    """A model of a class of its own: torch.jit.script compiles each class once."""

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.rows, self.logs = torch.nn.Softmax(1), torch.nn.LogSoftmax(0)

        def forward(self, x: torch.Tensor):
            parts = torch.softmax(x, 1) + torch.special.log_softmax(x, 1) + torch.special.softmax(x, 0) + x.softmax(0)
            return parts + F.softmax(x, 1) + F.softmin(x, 1) + self.rows(x) + self.logs(x)

    return Model()


@pytest.mark.filterwarnings("ignore")
def test_scripts_are_those_of_torch(x):
    expected = model()(x)
    code = torch.jit.script(model()).inlined_graph
    for _ in range(2):
        with patch_torch():
            scripted = torch.jit.script(model())
            assert torch.jit.script(F.softmax)(x, 1).shape == x.shape
        assert str(scripted.inlined_graph).count("softmax") == str(code).count("softmax")
        torch.testing.assert_close(scripted(x), expected)


def test_symbolic_traces_are_those_of_torch(x):
    expected = [node.target for node in torch.fx.symbolic_trace(model()).graph.nodes]
    with patch_torch():
        traced = torch.fx.symbolic_trace(model())
    assert [node.target for node in traced.graph.nodes] == expected
    torch.testing.assert_close(traced(x), model()(x))


def test_traces_with_fake_tensors_have_the_operator(x):
    from torch.fx.experimental.proxy_tensor import make_fx

    with patch_torch():
        traced = make_fx(lambda x: F.softmax(x, 1), tracing_mode="fake")(x)
        exported = torch.export.export(torch.nn.Softmax(1), (x,), strict=False)
    for code in (traced.code, str(exported.graph)):
        assert "portable_softmax.softmax.default" in code
