"""Errors of a kernel that runs on the virtual device; the text ends with the line of the instruction."""

from portable_softmax.errors import PortableSoftmaxError


class Fault(PortableSoftmaxError, RuntimeError):
    """The kernel did something that no correct kernel does."""


class UnknownInstruction(Fault, NotImplementedError):
    """The text has an instruction, an operand or a modifier that the virtual device does not know."""


class OutOfBounds(Fault):
    """An address lies in no allocation."""


class Uninitialised(Fault):
    """LDS was read where nothing was written."""


class Race(Fault):
    """Two waves accessed the same byte of LDS, one of them wrote, and no barrier was between."""


class Stuck(Fault):
    """The waves wait for each other, or ran for more steps than any launch should take."""


class MissingWait(Fault):
    """A register is used before an instruction waited for the load that writes it."""
