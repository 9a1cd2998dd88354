"""A torch device of type `npu` whose memory is the host's: PrivateUse1, and a tensor class that computes on the CPU.

The function of torch that sets up such a device is private: noxfile.py pins the version of torch.
"""

import types
from contextlib import contextmanager

import torch
from torch.utils._pytree import tree_map
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

from virtual.machine import MACHINE

NAME = "npu"


class NpuTensor(torch.Tensor):
    """A tensor on one of the machine's NPUs; `host` holds its elements, and every operator runs on that."""

    __torch_function__ = torch._C._disabled_torch_function_impl

    @staticmethod
    def __new__(cls, host: torch.Tensor, index: int) -> "NpuTensor":
        return torch.Tensor._make_wrapper_subclass(
            cls,
            host.size(),
            strides=host.stride(),
            storage_offset=host.storage_offset(),
            dtype=host.dtype,
            device=torch.device(NAME, index),
        )

    def __init__(self, host: torch.Tensor, index: int) -> None:
        self.host = host

    def data_ptr(self) -> int:
        return self.host.data_ptr()

    def __repr__(self) -> str:
        return f"{self.host!r} on {self.device}"

    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        if function.namespace == "portable_softmax":  # what torch calls for a device that is not made of Python
            return function._op_dk(torch._C.DispatchKey.CompositeExplicitAutograd, *args, **kwargs)
        index = next((x.device.index for x in args if isinstance(x, cls)), MACHINE.current)
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
    return x.host if isinstance(x, NpuTensor) else x


def _index(device: "torch.device | int | str | None") -> int:
    """Returns the number of a device as torch's functions take it; the current one's where it has no number."""
    index = device if isinstance(device, int) else torch.device(device or NAME).index
    return MACHINE.current if index is None else index


def _empty(size, dtype=None, layout=None, device=None, pin_memory=None, memory_format=None):
    return NpuTensor(torch.empty(size, dtype=dtype), _index(device))


def _empty_strided(size, stride, dtype=None, layout=None, device=None, pin_memory=None):
    return NpuTensor(torch.empty_strided(size, stride, dtype=dtype), _index(device))


@contextmanager
def _device(device):
    """`with torch.npu.device(...)`: the device is the current one inside."""
    before, MACHINE.current = MACHINE.current, _index(device)
    try:
        yield
    finally:
        MACHINE.current = before


def _properties(device=None) -> types.SimpleNamespace:
    """With the fields of torch_npu 2.13 that tell anything, or of one that is older than the core counts."""
    npu = MACHINE.npus[_index(device)]
    facts = {"name": npu.arch, "total_memory": npu.memory_bytes}
    if npu.torch_tells_cores:
        facts |= {
            "cube_core_num": npu.vector_cores // 2,
            "vector_core_num": npu.vector_cores,
            "L2_cache_size": npu.l2_cache_bytes,
        }
    return types.SimpleNamespace(**facts)


def install() -> torch.library.Library:
    """Makes this process's torch know the device; once per process. The operators live as long as the result."""
    module = types.ModuleType(f"torch.{NAME}")
    module.is_available = module.is_initialized = lambda: True
    module._is_in_bad_fork = lambda: False
    module.manual_seed_all = lambda seed: None
    module.device_count = lambda: len(MACHINE.npus)
    module.current_device = lambda: MACHINE.current
    module.device = _device
    module.get_device_properties = _properties
    _setup_privateuseone_for_python_backend(NAME, backend_module=module)
    library = torch.library.Library("aten", "IMPL")
    library.impl("empty.memory_format", _empty, "PrivateUse1")
    library.impl("empty_strided", _empty_strided, "PrivateUse1")
    return library
