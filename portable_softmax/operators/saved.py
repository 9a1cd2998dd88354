"""The operators portable_softmax::scored and ::scored_backward, which programs that were saved with version 1.0 name."""

from typing import Any

import torch

from portable_softmax.operators.library import operator

_library = torch.library.Library("portable_softmax", "FRAGMENT")
_library.define(
    "scored(Tensor x, int dim, ScalarType dtype, str form, Tensor? mask, Tensor? factors, float? factor, bool divides, "
    "float? softcap, str? causal, Tensor? sinks, bool zero_rows) -> Tensor"
)
_library.define(
    "scored_backward(Tensor dy, Tensor y, int dim, ScalarType x_dtype, str form, str? mask, Tensor? factors, float? factor, "
    "bool divides, str? causal, bool sink, bool zero_rows) -> Tensor"
)


def _scored(
    x: Any, dim: Any, dtype: Any, form: str, mask: Any, factors: Any, factor: Any, divides: Any, softcap: Any, causal: Any,
    sinks: Any, zero_rows: Any,
) -> Any:  # fmt: skip
    return operator(form)(x, dim, dtype, mask, factors, sinks, factor, divides, softcap, causal, zero_rows)


def _scored_backward(
    dy: Any, y: Any, dim: Any, x_dtype: Any, form: str, mask: Any, factors: Any, factor: Any, divides: Any, causal: Any,
    sink: Any, zero_rows: Any,
) -> Any:  # fmt: skip
    return operator(f"{form}_backward")(dy, y, dim, x_dtype, factors, factor, divides, mask, causal, sink, zero_rows)


_library.impl("scored", _scored, "CompositeImplicitAutograd")
_library.impl("scored_backward", _scored_backward, "CompositeImplicitAutograd")
