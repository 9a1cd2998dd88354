"""Errors of a kernel that runs here; the text ends with the line of the instruction."""


class Fault(RuntimeError):
    """The kernel did something that no correct kernel does."""


class UnknownInstruction(Fault, NotImplementedError):
    """The text has an instruction, an operand, a modifier or a target that is not known here."""


class OutOfBounds(Fault):
    """The kernel accessed an address outside all allocations."""


class Uninitialised(Fault):
    """The kernel read LDS that was never written."""


class Race(Fault):
    """Two waves accessed the same byte of LDS, at least one of them wrote, and there was no barrier between them."""


class Stuck(Fault):
    """The waves wait for each other, or a launch ran for more steps than allowed."""


class MissingWait(Fault):
    """A register is used while a load that writes it may not be done."""
