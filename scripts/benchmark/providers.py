"""Implementations of softmax and of log-probabilities of tokens for the benchmark: those that can be imported."""

import importlib
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

Function = Callable[..., torch.Tensor]


@dataclass(frozen=True)
class Provider:
    """Functions of one implementation, along the last dimension of a matrix; None if it has no such function.

    A cross-entropy of each row serves as its log-probability, with the other sign.

    Args:
        forward: y from x, with no gradient recorded.
        backward: dx from dy and y, by its kernel alone.
        log_softmax: log_softmax of x, with no gradient recorded.
        differentiable: y from x, for torch.autograd.
        token_log_probs: log-probabilities of ids from x and ids.
        token_entropy: the same, and entropies of rows.
        token_backward: makes, from x, ids and gradients of log-probabilities, the call that computes dx alone.
        cross_entropy: the mean of log-probabilities from x and ids, for torch.autograd.
        overwrites: the gradient of `cross_entropy` is written over x.
    """

    forward: Function | None = None
    backward: Function | None = None
    log_softmax: Function | None = None
    differentiable: Function | None = None
    token_log_probs: Function | None = None
    token_entropy: Callable[..., Any] | None = None
    token_backward: Callable[..., Callable[[], torch.Tensor]] | None = None
    cross_entropy: Function | None = None
    overwrites: bool = False


def load(names: Iterable[str]) -> dict[str, Provider]:
    """Imports the providers with these names, in the order of NAMES; prints on stderr which cannot be imported."""
    loaded = {}
    for name in (name for name in NAMES if name in names):
        try:
            loaded[name] = _LOADERS[name]()
        except Exception as error:  # a package that does not suit this torch or device fails in its own way
            print(f"without {name}: {type(error).__name__}: {error}", file=sys.stderr)
    return loaded


def _ours() -> Provider:
    from portable_softmax import log_softmax, softmax, token_log_probs
    from portable_softmax.operators.softmax import NO_FACTORS, launched_gradient

    def gradient(dy: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        dx: torch.Tensor = launched_gradient(dy, y, NO_FACTORS, False, y.dim() - 1, False, y.dtype, False)
        return dx

    tokens = _of_tokens(token_log_probs, partial(token_log_probs, entropy=True)) | {"token_backward": _our_gradient}
    return Provider(softmax, gradient, log_softmax, softmax, **tokens)


def _our_gradient(x: torch.Tensor, ids: torch.Tensor, dy: torch.Tensor) -> Callable[[], torch.Tensor]:
    """Returns what autograd calls."""
    from portable_softmax.operators.log_probs import call_of, launched_gradient

    inputs = x, ids, None, None, None
    call = call_of(inputs, (-1, -100, False, False))
    assert call is not None
    assert call.run
    gradient: Any = launched_gradient
    return partial(gradient, inputs, call.run(inputs)[1], (dy, None, None), call.options)


def _copy() -> Provider:
    """Returns the ceiling, which moves as many bytes and computes nothing."""

    class Tokens(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
            ctx.save_for_backward(x)
            x.view(-1)[: x.numel() // 2].clone()  # as many bytes as reading x
            return x.new_empty(len(x), dtype=torch.float32)

        @staticmethod
        def backward(ctx: Any, dy: torch.Tensor) -> tuple[torch.Tensor, None]:
            return ctx.saved_tensors[0].clone(), None

    tokens = _of_tokens(Tokens.apply, Tokens.apply) | {"token_backward": lambda x, ids, dy: x.clone}
    return Provider(torch.clone, torch.add, torch.clone, _differentiable(torch.clone, torch.add), **tokens)


def _read() -> Provider:
    """Returns the ceiling of what reads as many bytes, and writes next to nothing."""

    def read(x: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
        return x.amax()

    return Provider(token_log_probs=read, token_entropy=read)


def _torch() -> Provider:
    gradient = torch.ops.aten._softmax_backward_data

    def softmax(x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(x, -1)

    def log_softmax(x: torch.Tensor) -> torch.Tensor:
        return torch.log_softmax(x, -1)

    tokens = _of_tokens(_token_log_probs, _token_entropy)
    return Provider(softmax, lambda dy, y: gradient(dy, y, -1, y.dtype), log_softmax, softmax, **tokens)


def _of_tokens(log_probs: Callable[..., Any], entropy: Callable[..., Any]) -> dict[str, Any]:
    mean, gradient = lambda x, ids: log_probs(x, ids).mean(), partial(_recorded_gradient, log_probs)
    return {"token_log_probs": log_probs, "token_entropy": entropy, "token_backward": gradient, "cross_entropy": mean}


def _recorded_gradient(log_probs: Function, x: torch.Tensor, ids: torch.Tensor, dy: torch.Tensor) -> Callable[[], torch.Tensor]:
    leaf = x.detach().requires_grad_()
    y = log_probs(leaf, ids)
    return lambda: torch.autograd.grad(y, leaf, dy, retain_graph=True)[0]


def _token_log_probs(x: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
    return torch.log_softmax(x, -1, dtype=torch.float32).gather(-1, ids.unsqueeze(-1)).squeeze(-1)


def _token_entropy(x: torch.Tensor, ids: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    logs = torch.log_softmax(x, -1, dtype=torch.float32)
    return logs.gather(-1, ids.unsqueeze(-1)).squeeze(-1), -(logs.exp() * logs).sum(-1)


def _cross_entropy() -> Provider:
    """Returns torch's cross-entropy, which rounds log-probabilities to the type of logits."""
    by_row = partial(torch.nn.functional.cross_entropy, reduction="none")
    gradient = partial(_recorded_gradient, by_row)
    return Provider(token_log_probs=by_row, token_backward=gradient, cross_entropy=torch.nn.functional.cross_entropy)


def _compiled() -> Provider:
    """Returns torch.compile's softmax, compiled by Inductor for each shape."""
    compiled = partial(torch.compile, dynamic=False)
    softmax = compiled(lambda x: torch.softmax(x, -1))
    log_softmax, gradient = compiled(lambda x: torch.log_softmax(x, -1)), compiled(_naive_gradient)
    tokens = _of_tokens(_token_log_probs, _token_entropy)
    return Provider(softmax, gradient, log_softmax, softmax, **_compiled_tokens(tokens))


def _compiled_cross_entropy() -> Provider:
    by_row, mean = _cross_entropy().token_log_probs, _cross_entropy().cross_entropy
    return Provider(**_compiled_tokens({"token_log_probs": by_row, "cross_entropy": mean}))


def _compiled_tokens(functions: dict[str, Any]) -> dict[str, Any]:
    """Returns functions compiled by Inductor; gradients may be computed again from what was kept."""
    functorch: Any = importlib.import_module("torch._functorch.config")
    functorch.donated_buffer = False
    compiled = {
        name: torch.compile(function, dynamic=False) for name, function in functions.items() if name != "token_backward"
    }
    return compiled | {"token_backward": partial(_recorded_gradient, compiled["token_log_probs"])}


def _naive() -> Provider:
    """Returns a softmax with one operator for each step, like the beginning of the tutorials."""

    def softmax(x: torch.Tensor) -> torch.Tensor:
        e = torch.exp(x - x.amax(-1, keepdim=True))
        return e / e.sum(-1, keepdim=True)

    def log_softmax(x: torch.Tensor) -> torch.Tensor:
        shifted = x - x.amax(-1, keepdim=True)
        return shifted - shifted.exp().sum(-1, keepdim=True).log()

    return Provider(softmax, _naive_gradient, log_softmax, softmax)


def _naive_gradient(dy: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return y * (dy - (dy * y).sum(-1, keepdim=True))


def _liger() -> Provider:
    ops = importlib.import_module("liger_kernel.ops.softmax")

    def gradient(dy: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = ops._softmax_backward(dy, y, *ops.calculate_settings(y.shape[-1]), False)
        return result

    cross_entropy = importlib.import_module("liger_kernel.transformers.functional").liger_cross_entropy
    return Provider(
        lambda x: ops._softmax_forward(x)[0], gradient, differentiable=ops.LigerSoftmaxFunction.apply,
        cross_entropy=cross_entropy, overwrites=True,
    )  # fmt: skip


def _flaggems() -> Provider:
    """Returns FlagGems' operators, called directly. FlagGems means to install them in torch's dispatcher."""
    ops = importlib.import_module("flag_gems").ops

    def softmax(x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = ops.softmax(x, -1)
        return result

    def gradient(dy: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = ops.softmax_backward(dy, y, -1, y.dtype)
        return result

    return Provider(softmax, gradient, lambda x: ops.log_softmax(x, -1), _differentiable(softmax, gradient))


def _quack() -> Provider:
    module = importlib.import_module("quack.softmax")  # the attribute `quack.softmax` is the function with that name
    tokens = importlib.import_module("quack.cross_entropy")

    def token_backward(x: torch.Tensor, ids: torch.Tensor, dy: torch.Tensor) -> Callable[[], torch.Tensor]:
        _, lse = tokens.cross_entropy_fwd(x, ids, return_lse=True)
        return partial(tokens.cross_entropy_bwd, x, ids, dy, lse)

    return Provider(
        module.softmax_fwd, module.softmax_bwd, differentiable=module.softmax, token_backward=token_backward,
        token_log_probs=partial(tokens.cross_entropy, reduction="none"), cross_entropy=tokens.cross_entropy,
    )  # fmt: skip


def _differentiable(forward: Function, backward: Function) -> Function:
    class Softmax(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            y = forward(x)
            ctx.save_for_backward(y)
            return y

        @staticmethod
        def backward(ctx: Any, dy: torch.Tensor) -> torch.Tensor:
            return backward(dy, *ctx.saved_tensors)

    apply: Function = Softmax.apply
    return apply


_LOADERS: dict[str, Callable[[], Provider]] = {
    "copy": _copy,
    "read": _read,
    "torch": _torch,
    "cross_entropy": _cross_entropy,
    "compile": _compiled,
    "compiled_cross_entropy": _compiled_cross_entropy,
    "naive": _naive,
    "liger": _liger,
    "flaggems": _flaggems,
    "quack": _quack,
    "ours": _ours,
}
NAMES = tuple(_LOADERS)
