"""A machine whose devices are absent: their properties, the current one, and the launches.

Real are Triton's compiler, its cache, the driver's choice of a target, and this package. Virtual are torch's tensors, a class
that computes on the CPU, what a vendor's runtime reports and does, and the device: each vendor's tests have a driver that runs
what was compiled.
"""

import json
import types
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import torch
import triton
from torch.utils._pytree import tree_map
from triton.backends.compiler import GPUTarget

from portable_softmax.devices import detect
from portable_softmax.operators import launch


def recorded(kind: str) -> dict[str, dict[str, Any]]:
    """Returns what machines report, by names of files in tests/support/recorded; each names its origin."""
    return {
        path.stem: json.loads(path.read_text()) for path in sorted(Path(__file__).with_name("recorded").glob(f"{kind}_*.json"))
    }


RECORDED = recorded("driver")


class Launch(NamedTuple):
    """A launch that happened."""

    arch: str
    kernel: str
    grid: tuple[int, int, int]
    num_warps: int | None = None


class Machine:
    """Devices of a type.

    Args:
        kind: torch's name of the type: cuda (also for ROCm), xpu or npu.
        facts: of each device, by its name, the result of `torch.KIND.get_device_properties`.
    """

    def __init__(self, kind: str, facts: dict[str, dict[str, Any]]) -> None:
        self.kind, self.facts = kind, facts
        self.launches: list[Launch] = []

    def index(self, name: str) -> int:
        return list(self.facts).index(name)

    def where(self, name: str) -> str:
        """Torch's name of a device."""
        return f"{self.kind}:{self.index(name)}"

    @property
    def current(self) -> int:
        return HostTensor.current

    @contextmanager
    def installed(self, patch):
        """Makes this process's torch one that has these devices, until the context ends."""
        forget()
        patch.setattr(HostTensor, "kind", self.kind)
        patch.setattr(launch, "Parameter", HostTensor)  # a plain tensor of a device is of no other class than torch's own
        patch.setattr(launch, "_dispatch_isTensorSubclassLike", lambda x: False)
        key = self.kind.upper()
        if not hasattr(torch, self.kind):
            _set_up(self.kind)
            key = "PrivateUse1"
        for name, function in _functions(list(self.facts.values())).items():
            patch.setattr(getattr(torch, self.kind), name, function, raising=False)
        library = torch.library.Library("aten", "IMPL")
        library.impl("empty.memory_format", _empty, key)
        library.impl("empty_strided", _empty_strided, key)
        yield self
        library._destroy()
        forget()


class RecordedDriver:
    """Triton's side of a recorded machine."""

    def __init__(self, machine: dict[str, Any]) -> None:
        self.machine, self.utils = machine, self

    def get_current_target(self) -> GPUTarget:
        return GPUTarget(*self.machine["target"])

    def get_device_properties(self, index: int) -> dict[str, Any]:
        return self.machine["properties"][index]


def play(patch, machine: dict[str, Any]) -> None:
    """Makes this process look like a recorded machine, on which nothing is launched, to Triton's users and to torch's."""
    known = {"is_available": lambda: machine.get("available", True), "get_device_capability": lambda _: machine["target"][1]}
    module = types.SimpleNamespace(__name__="torch." + machine["torch_device_type"], **_functions(machine["torch"]) | known)
    patch.setattr(torch, machine["torch_device_type"], module, raising=False)
    patch.setattr(triton.runtime, "driver", types.SimpleNamespace(active=RecordedDriver(machine)))


def forget() -> None:
    """Forgets the device that is here, and the launches on it."""
    detect._device.cache_clear()
    detect._active_backend.cache_clear()
    launch.calls.clear()


def on_host(value: Any) -> Any:
    """Returns an argument of a launch as in the host's memory; a tensor must be on the current device."""
    if not isinstance(value, HostTensor):
        return value
    if value.device.index != HostTensor.current:
        raise RuntimeError(f"a tensor on {value.device} in a launch on device {HostTensor.current}")
    return value.host


class HostTensor(torch.Tensor):
    """A tensor on one of the machine's devices; `host` holds its elements, and every operator runs on that."""

    __torch_function__ = torch._C._disabled_torch_function_impl
    kind = "cuda"  # torch's name of the device's type
    current = 0  # the current device

    @staticmethod
    def __new__(cls, host, index):
        layout = {"strides": host.stride(), "storage_offset": host.storage_offset(), "dtype": host.dtype}
        made = torch.Tensor._make_wrapper_subclass(cls, host.size(), device=torch.device(cls.kind, index), **layout)
        made.host = host
        return made

    def data_ptr(self):
        return self.host.data_ptr()

    def __repr__(self):
        return f"{self.host!r} on {self.device}"

    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        if function.namespace == "portable_softmax":  # torch calls this key for a real device
            return function._op_dk(torch._C.DispatchKey.CompositeExplicitAutograd, *args, **kwargs)
        index = next((x.device.index for x in args if isinstance(x, cls)), cls.current)
        if (device := kwargs.get("device")) is not None:
            kwargs["device"] = torch.device("cpu")
            index = None if torch.device(device).type == "cpu" else _index(device)
        result = function(*tree_map(_host, args), **tree_map(_host, kwargs))
        if index is None:
            return result
        if function._schema.is_mutable:
            return args[0]
        return tree_map(lambda x: cls(x, index) if isinstance(x, torch.Tensor) else x, result)


def _host(x):
    return x.host if isinstance(x, HostTensor) else x


def _index(device):
    """Returns the index of a device, in any form that torch's functions accept; the current index if it has none."""
    index = device if isinstance(device, int) else device and torch.device(device).index
    return HostTensor.current if index is None else index


def _empty(size, dtype=None, layout=None, device=None, pin_memory=None, memory_format=None):
    return HostTensor(torch.empty(size, dtype=dtype), _index(device))


def _empty_strided(size, stride, dtype=None, layout=None, device=None, pin_memory=None):
    return HostTensor(torch.empty_strided(size, stride, dtype=dtype), _index(device))


@contextmanager
def _device(device):
    """Replaces `with torch.KIND.device(...)`: the device is the current one inside."""
    before, HostTensor.current = HostTensor.current, _index(device)
    try:
        yield
    finally:
        HostTensor.current = before


def _functions(facts):
    """Returns functions of torch.KIND, for the results of its `get_device_properties` for each device."""
    return {
        "is_available": lambda: True,
        "_lazy_init": lambda: None,
        "device_count": lambda: len(facts),
        "current_device": lambda: HostTensor.current,
        "set_device": lambda device: setattr(HostTensor, "current", _index(device)),
        "device": _device,
        "get_device_properties": lambda device=None: types.SimpleNamespace(**facts[_index(device)]),
        "current_stream": lambda device=None: types.SimpleNamespace(cuda_stream=0, sycl_queue=0),
        "is_current_stream_capturing": lambda: False,
    }


def _set_up(kind):
    """Makes torch know a type, once per process. The function is private: scripts/virtual_npu.sh pins the version of torch."""
    from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

    module = types.ModuleType(f"torch.{kind}")
    module.is_initialized, module._is_in_bad_fork = lambda: True, lambda: False
    module.manual_seed_all, module.device_count = lambda seed: None, lambda: 1
    _setup_privateuseone_for_python_backend(kind, backend_module=module)
