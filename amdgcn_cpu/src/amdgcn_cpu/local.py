"""LDS: memory of a workgroup, with the barriers that order its accesses ("Local Data Share" in the guides).

Each byte records the wave that wrote it last, the wave that read it last, and the number of barriers at which that wave had
arrived. A later access by another wave is ordered if that wave has passed a barrier at which the first one arrived afterwards.
"""

import numpy as np

from amdgcn_cpu.arithmetic import combine
from amdgcn_cpu.arrays import Array
from amdgcn_cpu.faults import OutOfBounds, Race, Uninitialised

_NO_WAVE, _SEVERAL = -1, -2


class LocalMemory:
    """Bytes that the waves of one workgroup share.

    Args:
        size: bytes.
        n_waves: waves of the workgroup.
        strict: True refuses reads of a byte that was never written; False returns a random one.
        seed: chooses the random bytes.
    """

    def __init__(self, size: int, n_waves: int, strict: bool, seed: int) -> None:
        self._data = np.random.default_rng(seed).integers(0, 256, size, np.uint8)
        self._strict = strict
        self._writer, self._reader = np.full(size, _NO_WAVE), np.full(size, _NO_WAVE)
        self._written, self._read = np.full(size, -1), np.full(size, -1)  # barriers at which that wave had arrived
        self._atomic = np.zeros(size, bool)  # whether an atomic operation wrote it last
        self.arrived: dict[int, int] = dict.fromkeys(range(n_waves), 0)  # barriers of the waves that have not ended

    def all_arrived(self, passed: int) -> bool:
        """True if all waves have arrived at the barrier that follows so many others."""
        return all(count > passed for count in self.arrived.values())

    def _places(self, addresses: Array, size: int) -> Array:
        if ((addresses < 0) | (addresses + size > len(self._data))).any():
            raise OutOfBounds(f"{size} bytes of LDS at {int(addresses.max())}, of {len(self._data)}")
        return addresses[:, None] + np.arange(size)

    def load(self, addresses: Array, size: int, wave: int, arrived: int, passed: int) -> Array:
        """Returns [addresses, size] bytes.

        Args:
            addresses: one for each access.
            size: bytes of each access.
            wave: the number of the wave that reads.
            arrived, passed: barriers at which it has arrived, and that it has passed.

        Raises:
            OutOfBounds, Uninitialised, Race: see faults.py.
        """
        places = self._places(addresses, size)
        writer = self._writer[places]
        if self._strict and (writer == _NO_WAVE).any():
            raise Uninitialised(f"LDS at {int(places[writer == _NO_WAVE][0])} was never written")
        if ((writer != wave) & (writer != _NO_WAVE) & (self._written[places] >= passed)).any():
            raise Race(f"wave {wave} reads LDS that another wave wrote, with no barrier between")
        others = (self._reader[places] != wave) & (self._reader[places] != _NO_WAVE) & (self._read[places] >= passed)
        self._reader[places] = np.where(others, _SEVERAL, wave)
        self._read[places] = np.maximum(self._read[places], arrived)
        return self._data[places]

    def store(self, addresses: Array, values: Array, wave: int, arrived: int, passed: int) -> None:
        """Writes [addresses, size] bytes. Several waves may write the same value to the same place at once.

        Args:
            addresses, values: one for each access.
            wave, arrived, passed: as for `load`.

        Raises:
            OutOfBounds, Race: see faults.py.
        """
        places = self._places(addresses, values.shape[1])
        reader, writer = self._reader[places], self._writer[places]
        if ((reader != wave) & (reader != _NO_WAVE) & (self._read[places] >= passed)).any():
            raise Race(f"wave {wave} writes LDS that another wave read, with no barrier between")
        unordered = (writer != wave) & (writer != _NO_WAVE) & (self._written[places] >= passed)
        if (unordered & (self._data[places] != values)).any():
            raise Race(f"wave {wave} writes another value where another wave wrote, with no barrier between")
        self._data[places], self._atomic[places] = values, False
        self._writer[places], self._written[places] = wave, arrived

    def exchange(self, address: int, value: int, size: int, operation: str, wave: int, arrived: int, passed: int) -> int:
        """Performs an atomic operation on one word and returns the old value.

        Args:
            address, value, size, operation: as for `GlobalMemory.exchange`.
            wave, arrived, passed: as for `load`.

        Raises:
            OutOfBounds, Uninitialised, Race: see faults.py.
        """
        where = np.array([address])
        places = self._places(where, size)
        others, since = self._atomic[places] & (self._writer[places] != wave), self._written[places]
        self._written[places] = np.where(others, -1, since)  # atomic operations of other waves are no races
        old = int.from_bytes(self.load(where, size, wave, arrived, passed).tobytes(), "little")
        new = combine(operation, old, value, size).to_bytes(size, "little")
        self.store(where, np.frombuffer(new, np.uint8)[None], wave, arrived, passed)
        self._reader[places], self._read[places] = _NO_WAVE, -1
        self._atomic[places] = True
        self._writer[places] = np.where(others, _SEVERAL, wave)
        self._written[places] = np.where(others, np.maximum(since, arrived), arrived)
        return old
