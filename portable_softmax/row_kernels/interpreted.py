"""Follows small launches of a kernel in Triton's interpreter, which has no TTIR: its accesses are recorded, none is made."""

import contextlib
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch

from portable_softmax.devices.device import Device
from portable_softmax.errors import PlanError
from portable_softmax.row_kernels.arguments import NAMES, TORCH, Pointer
from portable_softmax.row_kernels.decorators import decorated, jit_function
from portable_softmax.row_kernels.following import Access
from portable_softmax.row_kernels.programs import Form, check_room, checked, of_launches
from portable_softmax.row_kernels.row_choice import RowPlan
from portable_softmax.row_kernels.row_settings import Request, settings_of

APART = 1 << 44  # bytes from one stand-in's address to the next's
MAX_ACCESSES = 100_000  # of a launch; more are no small launch's, as of a loop that waits


class _Memory(Pointer):
    """Stands for a tensor at an address of its own; the interpreter's copies to and from the host are itself."""

    def __init__(self, dtype: str, address: int) -> None:
        super().__init__(dtype, True)
        self.dtype, self.data = getattr(torch, TORCH[dtype]), self
        self.data_ptr = lambda: address

    def __getattr__(self, name: str) -> Any:
        if name.startswith(("_", "is_", "tma_")) or name in ("base", "block_shape"):  # marks of other kinds of arguments
            raise AttributeError(name)
        return lambda *_, **__: self


def plan_of(request: Request, device: Device) -> RowPlan:
    """Returns the launch in Triton's interpreter, which compiles nothing and runs one program after another."""
    config, name = settings_of(request, None)[0].config, jit_function(request.kernel).__name__
    constants = request.meta | config.kwargs
    if request.grid is not None or not request.rows:
        form, grid = Form(False), request.grid_of(constants) if request.rows else (0,)
    else:
        kernel, _ = decorated(request.kernel, config, constants)
        form = checked(form_of(kernel, request.arguments | constants, request.names[0], request.names[1]), request)
        check_room(form, request)
        grid = (request.num_programs or 1,)
    return RowPlan(name, (request.rows, request.cols), device.name, math.prod(grid), constants, grid, config=config, form=form)


def form_of(jit: Any, arguments: Mapping[str, Any], rows: str | None, cols: str) -> Form:
    """Returns the form of an interpreted kernel; see programs.form_of.

    Raises:
        PlanError: a small launch of it fails.
    """
    addresses = {name: (at + 1) * APART for at, name in enumerate(arguments)}
    values = {name: _stand_in(value, addresses[name]) for name, value in arguments.items()}

    def observe(n_rows: int, programs: int) -> tuple[list[Sequence[Access]], set[int]]:
        accesses: list[list[Access]] = [[] for _ in range(programs)]
        axes: set[int] = set()
        with _noted(accesses, {address: name for name, address in addresses.items()}, axes):
            try:
                jit.run(grid=(programs,), warmup=False, **values | ({rows: n_rows} if rows else {}))
            except Exception as error:
                name = jit.fn.__name__
                raise PlanError(f"{name}: a launch of {programs} programs fails in the interpreter: {error}") from error
        return list(accesses), axes

    return of_launches(observe, arguments[cols])


def _stand_in(value: Any, address: int) -> Any:
    if not hasattr(value, "data_ptr"):
        return value
    return _Memory(NAMES.get(kind := str(value.dtype).removeprefix("torch."), kind), address)


@contextlib.contextmanager
def _noted(accesses: list[list[Access]], names: Mapping[int, str], axes: set[int]) -> Iterator[None]:
    """Makes the interpreter's builder record accesses, by program, instead of making them."""
    import numpy as np
    from triton.runtime import interpreter  # its builder is the one place through which all accesses go

    builder, count = interpreter.interpreter_builder, itertools.count()
    sizes: dict[str, int] = {}

    def note(kind: str, pointers: Any, mask: Any) -> None:
        if next(count) >= MAX_ACCESSES:
            raise RuntimeError(f"{MAX_ACCESSES} accesses have not ended it")
        at = np.broadcast_to(pointers.data, np.broadcast_shapes(pointers.data.shape, np.shape(mask)))
        at = at[np.broadcast_to(mask, at.shape)] if mask is not None else at.ravel()
        if at.size:
            first = int(at.min())
            root = names.get(first // APART * APART, "")
            size = sizes.setdefault(root, max(1, pointers.dtype.element_ty.primitive_bitwidth // 8))
            offset = (first % APART) // size
            accesses[builder.grid_idx[0]].append(Access(root, kind, offset, pointers.data.size, frozenset(), ()))

    def load(pointers: Any, mask: Any, *_: Any) -> Any:
        note("load", pointers, mask.data)
        of = pointers.dtype.element_ty
        return interpreter.TensorHandle(np.zeros(pointers.data.shape, interpreter._get_np_dtype(of)), of)

    def store(pointers: Any, _: Any, mask: Any, *__: Any) -> None:
        note("store", pointers, mask.data)

    def atomic(*operands: Any) -> Any:
        at = next(at for at, operand in enumerate(operands) if hasattr(getattr(operand, "dtype", None), "element_ty"))
        pointers, value = operands[at : at + 2]
        note("atomic", pointers, None)
        return interpreter.TensorHandle(np.zeros_like(value.data), value.dtype)

    def program_id(axis: int) -> Any:
        axes.add(axis)
        return type(builder).create_get_program_id(builder, axis)

    replaced = {
        "create_masked_load": load, "create_masked_store": store, "create_atomic_rmw": atomic, "create_atomic_cas": atomic,
        "create_get_program_id": program_id,
    }  # fmt: skip
    vars(builder).update(replaced)
    try:
        yield
    finally:
        for name in replaced:
            del vars(builder)[name]
