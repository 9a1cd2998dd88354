"""Global memory: allocations are far apart, so an address out of bounds of one is in none."""

import numpy as np

from amdgcn_cpu.arithmetic import combine
from amdgcn_cpu.arrays import Array
from amdgcn_cpu.faults import OutOfBounds

_SHIFT = 36  # allocations begin at multiples of 64 GiB


class GlobalMemory:
    """Arrays of numpy at addresses."""

    def __init__(self) -> None:
        self._allocations: dict[int, tuple[Array, int]] = {}

    def register(self, array: Array, skew: int = 0) -> int:
        """Returns the address of an array; the kernel reads and writes the array in place.

        Args:
            array: a contiguous array.
            skew: bytes from a multiple of 256 to the first byte.
        """
        number = len(self._allocations) + 1
        self._allocations[number] = array.reshape(-1).view(np.uint8), skew
        return (number << _SHIFT) + skew

    def release(self, address: int) -> None:
        """Removes the allocation at an address. Its number is not used again."""
        self._allocations[address >> _SHIFT] = np.zeros(0, np.uint8), 0

    def _place(self, addresses: Array, size: int) -> tuple[Array, Array]:
        """Returns the bytes of the one allocation that holds all of the addresses, and the places of their bytes in it."""
        number = int(addresses[0]) >> _SHIFT
        data, skew = self._allocations.get(number, (np.zeros(0, np.uint8), 0))
        first = addresses - ((number << _SHIFT) + skew)
        wrong = (first < 0) | (first + size > len(data))
        if wrong.any():
            raise OutOfBounds(f"{size} bytes at {int(addresses[wrong][0]):#x}, of allocation {number} with {len(data)} bytes")
        return data, first[:, None] + np.arange(size)

    def _groups(self, addresses: Array) -> list[Array]:
        """Returns groups of indices; the addresses of a group lie in the same allocation, in order."""
        numbers = addresses >> _SHIFT
        if (numbers == numbers[0]).all():
            return [np.arange(len(addresses))]
        return [np.flatnonzero(numbers == number) for number in np.unique(numbers)]

    def load(self, addresses: Array, size: int) -> Array:
        """Returns [addresses, size] bytes.

        Raises:
            OutOfBounds: an address is in no allocation.
        """
        result = np.zeros((len(addresses), size), np.uint8)
        for group in self._groups(addresses) if len(addresses) else []:
            data, places = self._place(addresses[group], size)
            result[group] = data[places]
        return result

    def store(self, addresses: Array, values: Array) -> None:
        """Writes [addresses, size] bytes.

        Raises:
            OutOfBounds: an address is in no allocation.
        """
        for group in self._groups(addresses) if len(addresses) else []:
            data, places = self._place(addresses[group], values.shape[1])
            data[places] = values[group]

    def exchange(self, address: int, value: int, size: int, operation: str) -> int:
        """Performs an atomic operation on one word and returns the old value; a test may override it.

        Args:
            address: address of the word.
            value: the operand.
            size: bytes of the word.
            operation: `swap`, `or`, `and`, `xor`, `sub`, `cmpswap`; `add`, `min` and `max` with their type: `add_f`, `max_i`.

        Raises:
            OutOfBounds: the address is in no allocation.
            KeyError: there is no such operation.
        """
        where = np.array([address])
        old = int.from_bytes(self.load(where, size).tobytes(), "little")
        new = combine(operation, old, value, size)
        self.store(where, np.frombuffer(new.to_bytes(size, "little"), np.uint8)[None])
        return old

    def words(self, address: int, count: int) -> list[int]:
        """Returns `count` words of 32 bits from an address on. Scalar loads ignore the lowest two bits of the address."""
        loaded = self.load(np.array([address & ~3]), 4 * count)
        return [int(word) for word in loaded.reshape(-1).view(np.uint32)]
