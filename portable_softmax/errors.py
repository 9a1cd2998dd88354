"""Errors of this package. A message states the request, the actual state, and the remedy."""


class PortableSoftmaxError(Exception):
    """Base of all errors of this package."""


class ProfileError(PortableSoftmaxError, ValueError):
    """A hardware profile is missing, malformed, or has values that contradict each other."""


class DeviceError(PortableSoftmaxError, RuntimeError):
    """A device, its driver or its software is not in a state in which kernels can run."""


class NoDeviceError(DeviceError):
    """This machine has no accelerator that Triton drives; nothing is broken."""


class PlanError(PortableSoftmaxError, RuntimeError):
    """No launch of the kernel fits the device."""


class GridError(PlanError):
    """A launch has more programs, or more threads, than the device launches."""


class CompileError(PortableSoftmaxError, RuntimeError):
    """The kernel could not be compiled for the device; the text quotes the compiler."""


class TargetError(CompileError):
    """This Triton does not compile any kernel for the device; another release may."""


class KernelError(PortableSoftmaxError, RuntimeError):
    """A launch of a user kernel fails; the text names the fault, and in the emulator the instruction."""


class DtypeError(PortableSoftmaxError, TypeError, NotImplementedError):
    """The kernel does not compute this data type on this device; torch raises NotImplementedError in such a case."""


class LayoutError(PortableSoftmaxError, NotImplementedError):
    """The tensor is nested, sparse or in a library's own layout; torch raises NotImplementedError for most of these."""
