"""A torch device `cuda`, as ROCm's torch names it, whose memory is the host's: a tensor class that computes on the CPU."""

import types
from contextlib import contextmanager

import torch
from torch.utils._pytree import tree_map


class HipTensor(torch.Tensor):
    """A tensor on one of the machine's devices; `host` holds its elements, and every operator runs on that."""

    __torch_function__ = torch._C._disabled_torch_function_impl
    current = 0  # the current device

    @staticmethod
    def __new__(cls, host, index):
        layout = {"strides": host.stride(), "storage_offset": host.storage_offset(), "dtype": host.dtype}
        made = torch.Tensor._make_wrapper_subclass(cls, host.size(), device=torch.device("cuda", index), **layout)
        made.host = host
        return made

    def data_ptr(self):
        return self.host.data_ptr()

    def __repr__(self):
        return f"{self.host!r} on {self.device}"

    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        if function.namespace == "portable_softmax":  # what torch calls for a device that is not made of Python
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
    return x.host if isinstance(x, HipTensor) else x


def _index(device):
    """Of a device as torch's functions take it; the current one's where it has no number."""
    index = device if isinstance(device, int) else device and torch.device(device).index
    return HipTensor.current if index is None else index


def _empty(size, dtype=None, layout=None, device=None, pin_memory=None, memory_format=None):
    return HipTensor(torch.empty(size, dtype=dtype), _index(device))


def _empty_strided(size, stride, dtype=None, layout=None, device=None, pin_memory=None):
    return HipTensor(torch.empty_strided(size, stride, dtype=dtype), _index(device))


@contextmanager
def _device(device):
    """`with torch.cuda.device(...)`: the device is the current one inside."""
    before, HipTensor.current = HipTensor.current, _index(device)
    try:
        yield
    finally:
        HipTensor.current = before


def install(patch, facts):
    """Makes this process's torch one of ROCm's.

    Args:
        patch: pytest's monkeypatch, that undoes it.
        facts: of each device, what torch.cuda.get_device_properties tells.

    Returns:
        The operators that make tensors; they live as long as this does.
    """
    functions = {
        "is_available": lambda: True,
        "_lazy_init": lambda: None,
        "device_count": lambda: len(facts),
        "current_device": lambda: HipTensor.current,
        "set_device": lambda device: setattr(HipTensor, "current", _index(device)),
        "device": _device,
        "get_device_properties": lambda device=None: types.SimpleNamespace(**facts[_index(device)]),
        "current_stream": lambda device=None: types.SimpleNamespace(cuda_stream=0),
        "is_current_stream_capturing": lambda: False,
    }
    for name, function in functions.items():
        patch.setattr(torch.cuda, name, function)
    patch.setattr(torch.version, "hip", "7.0.0")
    library = torch.library.Library("aten", "IMPL")
    library.impl("empty.memory_format", _empty, "CUDA")
    library.impl("empty_strided", _empty_strided, "CUDA")
    return library
