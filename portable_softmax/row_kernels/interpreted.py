"""Records the accesses of small launches in Triton's interpreter, which has no TTIR; no memory is accessed."""

import contextlib
import itertools
import math
from collections.abc import Iterator, Mapping
from types import SimpleNamespace
from typing import Any
from unittest import mock

from portable_softmax.devices.device import Device
from portable_softmax.errors import PlanError
from portable_softmax.row_kernels.arguments import NAMES
from portable_softmax.row_kernels.decorators import decorated, jit_function
from portable_softmax.row_kernels.facts import PROGRAMS, ROWS, Form, behind, check_form, of_launches
from portable_softmax.row_kernels.following import Access
from portable_softmax.row_kernels.row_choice import RowPlan
from portable_softmax.row_kernels.row_settings import Request, settings_of

APART = 1 << 44  # bytes from one stand-in's address to the next's, from 2**48 on, where no memory is
MAX_ACCESSES, MAX_OF_ROW = 100_000, 1000  # of a launch, and of a row beside them; more are those of a loop that waits


def plan_of(request: Request, device: Device) -> RowPlan:
    """Returns the launch in Triton's interpreter, which compiles nothing and runs one program after another."""
    config, name = settings_of(request, None)[0].config, jit_function(request.kernel).__name__
    constants = request.meta | config.kwargs
    grid = (request.num_programs or -(-request.rows // ROWS[2]) or 1,) if request.grid is None else request.grid_of(constants)
    form = _form_of(decorated(request.kernel, config, constants), request, constants, grid) if request.rows else Form(True)
    programs = math.prod(grid) if request.rows else 0
    return RowPlan(name, (request.rows, request.cols), device.name, programs, constants, grid, config=config, form=form)


def _form_of(kernel: Any, request: Request, constants: Mapping[str, Any], grid: tuple[int, ...]) -> Form:
    """Returns the form of an interpreted kernel, as facts.form_of; PlanError if a launch fails or cannot be computed."""
    arguments, (n_rows, cols, block) = {**request.arguments, **constants}, request.names
    roots = {(at + 16) * APART: name for at, name in enumerate(arguments)}
    values = {name: _stand_in(arguments[name], address) for address, name in roots.items()}

    def observe(rows: int, programs: int, most: int = PROGRAMS[-1]) -> list[list[Access]]:
        accesses: list[list[Access]] = [[] for _ in range(min(programs, most))]
        with _noted(accesses, roots, programs, MAX_ACCESSES + MAX_OF_ROW * rows):
            try:
                kernel.run(grid=(len(accesses),), warmup=False, **values | ({n_rows: rows} if n_rows else {}))
            except Exception as error:
                if request.grid is None:
                    name = jit_function(kernel).fn.__name__
                    raise PlanError(f"{name}: a launch of {programs} programs fails in the interpreter: {error}") from error
        return accesses

    form = of_launches(observe, arguments[cols]) if request.grid is None else Form(True)
    if request.grid is None and form.walks:
        rows = min(request.rows, ROWS[2])  # all take too long
        launches = [observe(rows, count, count) for count in (1, 3, min(grid[0], rows))]
        if len({sum(access.root == form.shared for one in launch for access in one) for launch in launches}) > 1:
            form = Form(False, what=f"it goes over {rows} rows otherwise than over {ROWS[0]}")
    check_form(form, request)
    if error := behind(request, arguments[block], lambda: observe(ROWS[0], 1)[0]):
        raise error
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
def _noted(accesses: list[list[Access]], roots: Mapping[int, str], programs: int, most: int) -> Iterator[None]:
    """Records at most so many accesses by program, in place of the interpreter's; loads return 0."""
    import numpy as np
    from triton.runtime import interpreter  # its calls of its C++ part are the one place through which all accesses go

    builder, count = interpreter.interpreter_builder, itertools.count()
    read = builder.create_get_program_id

    def program_id(axis: int) -> Any:
        accesses[builder.grid_idx[0]] += [Access("", "axis", axis)] if axis else []
        return read(axis)

    def note(kind: str, pointers: Any, mask: Any, dtype: Any, other: Any = 0) -> Any:
        if next(count) >= most:
            raise RuntimeError(f"{most} accesses have not ended it")
        mask = np.broadcast_to(mask, pointers.shape).astype(bool)  # it may be of integers
        if mask.any():
            (address, offset), masked = divmod(int(pointers[mask].min()), APART), not mask.all()
            root, offset = roots.get(address * APART, ""), offset // np.dtype(dtype).itemsize
            accesses[builder.grid_idx[0]].append(Access(root, kind, offset, elements=int(mask.sum()), masked=masked))
        return np.where(mask, 0, other).astype(dtype)

    calls = SimpleNamespace(
        load=lambda pointers, mask, other, dtype: note("load", pointers, mask, dtype, other),
        store=lambda pointers, value, mask: note("store", pointers, mask, value.dtype),
        atomic_rmw=lambda operation, pointers, value, mask, order: note("atomic", pointers, mask, value.dtype),
        atomic_cas=lambda pointers, compared, value, order: note("atomic", pointers, True, value.dtype),
    )
    replaced = mock.patch.multiple(
        builder, create_get_program_id=program_id, set_grid_dim=lambda *_: vars(builder).update(grid_dim=(programs, 1, 1))
    )
    with replaced, mock.patch.object(interpreter, "_interpreter", calls):
        yield
