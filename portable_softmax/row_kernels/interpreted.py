"""Records the accesses of small launches in Triton's interpreter, which has no TTIR; no memory is accessed."""

import contextlib
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from types import SimpleNamespace
from typing import Any
from unittest import mock

from portable_softmax.devices.device import Device
from portable_softmax.errors import PlanError
from portable_softmax.row_kernels.arguments import NAMES
from portable_softmax.row_kernels.decorators import decorated, jit_function
from portable_softmax.row_kernels.facts import PROGRAMS, Form, most_programs, of_launches
from portable_softmax.row_kernels.following import Access
from portable_softmax.row_kernels.row_choice import RowPlan
from portable_softmax.row_kernels.row_settings import Request, settings_of

APART = 1 << 44  # bytes from one stand-in's address to the next's, from 2**48 on, where no memory is
MAX_ACCESSES = 100_000  # of a launch; more are no small launch's, as of a loop that waits


def plan_of(request: Request, device: Device) -> RowPlan:
    """Returns the launch in Triton's interpreter, which compiles nothing and runs one program after another."""
    config, name = settings_of(request, None)[0].config, jit_function(request.kernel).__name__
    constants = request.meta | config.kwargs
    form, grid = Form(True), request.grid_of(constants) if request.grid is not None else (request.num_programs or 1,)
    if request.rows and request.grid is None:
        form = _form_of(decorated(request.kernel, config, constants), request, constants)
    programs = math.prod(grid) if request.rows else 0
    return RowPlan(name, (request.rows, request.cols), device.name, programs, constants, grid, config=config, form=form)


def _form_of(kernel: Any, request: Request, constants: Mapping[str, Any]) -> Form:
    """Returns the form of an interpreted kernel, as facts.form_of; PlanError if a launch fails or cannot be computed."""
    arguments, (rows, cols, _) = {**request.arguments, **constants}, request.names
    roots = {(at + 16) * APART: name for at, name in enumerate(arguments)}
    values = {name: _stand_in(arguments[name], address) for address, name in roots.items()}

    def observe(n_rows: int, programs: int, most: int = PROGRAMS[-1]) -> list[Sequence[Access]]:
        accesses: list[list[Access]] = [[] for _ in range(min(programs, most))]
        with _noted(accesses, roots, programs):
            try:
                kernel.run(grid=(len(accesses),), warmup=False, **values | {str(rows): n_rows})
            except Exception as error:
                name = jit_function(kernel).fn.__name__
                raise PlanError(f"{name}: a launch of {programs} programs fails in the interpreter: {error}") from error
        return list(accesses)

    form = of_launches(observe, arguments[cols])
    most_programs(form, request, observe)
    return form


def _stand_in(value: Any, address: int) -> Any:
    """Returns the interpreter's pointer to an address in place of a tensor; else the value."""
    import numpy as np
    import triton.language as tl
    from triton.runtime.interpreter import TensorHandle

    if not hasattr(value, "data_ptr"):
        return value
    kind = NAMES.get(name := str(value.dtype).removeprefix("torch."), name)
    pointer = tl.pointer_type(tl.dtype(kind.replace("i", "int").replace("u", "uint")))
    return tl.tensor(TensorHandle(np.array([address], np.uint64), pointer), pointer)


@contextlib.contextmanager
def _noted(accesses: list[list[Access]], roots: Mapping[int, str], programs: int) -> Iterator[None]:
    """Replaces the interpreter's accesses by records of them, by program; loads return 0."""
    import numpy as np
    from triton.runtime import interpreter  # its calls of its C++ part are the one place through which all accesses go

    builder, count = interpreter.interpreter_builder, itertools.count()
    read = builder.create_get_program_id

    def program_id(axis: int) -> Any:
        accesses[builder.grid_idx[0]] += [Access("", "axis", axis)] if axis else []
        return read(axis)

    def note(kind: str, pointers: Any, mask: Any, dtype: Any) -> Any:
        if next(count) >= MAX_ACCESSES:
            raise RuntimeError(f"{MAX_ACCESSES} accesses have not ended it")
        at = pointers[np.broadcast_to(mask, pointers.shape).astype(bool)]  # the mask may be of integers
        if at.size:
            address, offset = divmod(int(at.min()), APART)
            root, offset = roots.get(address * APART, ""), offset // np.dtype(dtype).itemsize
            accesses[builder.grid_idx[0]].append(Access(root, kind, offset, elements=at.size))
        return np.zeros(pointers.shape, dtype)

    calls = SimpleNamespace(
        load=lambda pointers, mask, other, dtype: note("load", pointers, mask, dtype),
        store=lambda pointers, value, mask: note("store", pointers, mask, value.dtype),
        atomic_rmw=lambda operation, pointers, value, mask, order: note("atomic", pointers, mask, value.dtype),
        atomic_cas=lambda pointers, compared, value, order: note("atomic", pointers, True, value.dtype),
    )
    replaced = mock.patch.multiple(
        builder, create_get_program_id=program_id, set_grid_dim=lambda *_: vars(builder).update(grid_dim=(programs, 1, 1))
    )
    with replaced, mock.patch.object(interpreter, "_interpreter", calls):
        yield
