"""Implementations of softmax and of log-probabilities of tokens for the benchmark: those that can be imported.

A provider makes, by direction, the timed call of operands (rows.py). `copy` and `read` are the ceilings.
"""

import importlib
import sys
from collections.abc import Callable, Iterable
from functools import cache, partial
from typing import Any

import torch

Function = Callable[..., Any]
Call = Callable[[], Any]
Provider = dict[str, Callable[[Any], Call]]


def load(names: Iterable[str]) -> dict[str, Provider]:
    """Imports the providers with these names, in the order of NAMES; prints on stderr which cannot be imported."""
    names = set(names)
    return {name: provider for name in NAMES if name in names and (provider := _loaded(name))}


@cache
def _loaded(name: str) -> Provider:
    try:
        return _LOADERS[name]()
    except Exception as error:  # a package that does not suit this torch or device fails in its own way
        print(f"without {name}: {type(error).__name__}: {error}", file=sys.stderr)
        return {}


def _softmaxes(
    softmax: Function, log_softmax: Function | None = None, forward: Function | None = None, backward: Function | None = None
) -> Provider:
    """Returns the directions of a softmax.

    Args:
        softmax: y from x and dim, for torch.autograd.
        log_softmax: the same of log_softmax.
        forward: y from x and dim, with no gradient recorded; None for `softmax`.
        backward: dx from dy, y and dim, by its kernel alone; None for autograd's call of `softmax`.
    """

    def by_autograd(inputs: Any) -> Call:
        leaf = inputs.x.detach().requires_grad_()
        y = softmax(leaf, inputs.dim)
        return lambda: torch.autograd.grad(y, leaf, inputs.dy, retain_graph=True)[0]

    def both(inputs: Any) -> Call:
        leaf = inputs.x.detach().requires_grad_()
        return lambda: torch.autograd.grad(softmax(leaf, inputs.dim), leaf, inputs.dy)[0]

    made: Provider = {
        "forward": lambda inputs: partial(forward or softmax, inputs.x, inputs.dim),
        "backward": by_autograd,
        "both": both,
    }
    if backward:
        made["backward"] = lambda inputs: partial(backward, inputs.dy, inputs.y, inputs.dim)
    if log_softmax:
        made["log_softmax"] = lambda inputs: partial(log_softmax, inputs.x, inputs.dim)
    return made


def _of_tokens(log_probs: Function, entropy: Function | None = None, loss: Function | None = None) -> Provider:
    """Returns the directions of log-probabilities.

    Args:
        log_probs: log-probabilities, or with the other sign cross-entropies, of ids from x and ids, for torch.autograd.
        entropy: the same, and entropies of rows.
        loss: the mean from x and ids; None for that of `log_probs`.
    """

    def backward(inputs: Any) -> Call:
        leaf = inputs.x.detach().requires_grad_()
        y = log_probs(leaf, inputs.ids)
        dy = inputs.weights.to(y.dtype)
        return lambda: torch.autograd.grad(y, leaf, dy, retain_graph=True)[0]

    made: Provider = {
        "token_log_probs": lambda inputs: partial(log_probs, inputs.x, inputs.ids),
        "token_backward": backward,
        "token_both": partial(_loss, loss or (lambda x, ids: log_probs(x, ids).mean())),
    }
    return made | ({"token_entropy": lambda inputs: partial(entropy, inputs.x, inputs.ids)} if entropy else {})


def _loss(loss: Function, inputs: Any) -> Call:
    leaf = inputs.x.detach().requires_grad_()
    return lambda: torch.autograd.grad(loss(leaf, inputs.ids), leaf)[0]


def _ours() -> Provider:
    """Returns this package's operators. Gradients are timed as autograd calls them, without its thread, like those of peers."""
    from portable_softmax import log_softmax, softmax, token_log_probs

    softmaxes = importlib.import_module("portable_softmax.api.functional")
    of_tokens = importlib.import_module("portable_softmax.api.tokens")

    def gradient(dy: torch.Tensor, y: torch.Tensor, dim: int) -> Any:
        args = softmaxes.GRADIENT.Args(dy, y)
        return softmaxes.GRADIENT.launched(args, softmaxes.GRADIENT.Options(None, False, dim, False, y.dtype))

    def token_backward(inputs: Any) -> Call:
        tokens, options = of_tokens.TOKENS, (None, -1, -100, False, False, False)
        statistics = tokens.launched(tokens.Args(inputs.x, inputs.ids), tokens.Options(*options))[1]
        gradient_args = of_tokens.GRADIENT.Args(inputs.x, inputs.ids, statistics, inputs.weights)
        return partial(of_tokens.GRADIENT.launched, gradient_args, tokens.Options(*options))

    tokens = _of_tokens(token_log_probs, partial(token_log_probs, entropy=True)) | {"token_backward": token_backward}
    return _softmaxes(softmax, log_softmax, None, gradient) | tokens


def _copy() -> Provider:
    """Returns the ceiling, which moves as many bytes and computes nothing."""

    class Softmax(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor, dim: int) -> torch.Tensor:
            y = x.clone(memory_format=torch.contiguous_format)
            ctx.save_for_backward(y)
            return y

        @staticmethod
        def backward(ctx: Any, dy: torch.Tensor) -> tuple[torch.Tensor, None]:
            return torch.add(dy, *ctx.saved_tensors), None

    class Tokens(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
            ctx.save_for_backward(x)
            x.view(-1)[: x.numel() // 2].clone()  # as many bytes as reading x
            return x.new_empty(len(x), dtype=torch.float32)

        @staticmethod
        def backward(ctx: Any, dy: torch.Tensor) -> tuple[torch.Tensor, None]:
            return ctx.saved_tensors[0].clone(), None

    def clone(x: torch.Tensor, dim: int) -> torch.Tensor:
        return x.clone(memory_format=torch.contiguous_format)

    def add(dy: torch.Tensor, y: torch.Tensor, dim: int) -> torch.Tensor:
        return torch.add(dy, y, out=torch.empty_like(y))

    tokens = _of_tokens(Tokens.apply, Tokens.apply) | {"token_backward": lambda inputs: inputs.x.clone}
    return _softmaxes(Softmax.apply, clone, clone, add) | tokens


def _read() -> Provider:
    """Returns the ceiling of what reads as many bytes, and writes next to nothing."""
    return {"token_log_probs": lambda inputs: inputs.x.amax, "token_entropy": lambda inputs: inputs.x.amax}


def _torch() -> Provider:
    return _softmaxes(torch.softmax, torch.log_softmax, None, _torch_gradient) | _of_tokens(_token_log_probs, _token_entropy)


def _torch_gradient(dy: torch.Tensor, y: torch.Tensor, dim: int) -> torch.Tensor:
    dx: torch.Tensor = torch.ops.aten._softmax_backward_data(dy, y, dim, y.dtype)
    return dx


def _token_log_probs(x: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
    return torch.log_softmax(x, -1, dtype=torch.float32).gather(-1, ids.unsqueeze(-1)).squeeze(-1)


def _token_entropy(x: torch.Tensor, ids: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    logs = torch.log_softmax(x, -1, dtype=torch.float32)
    return logs.gather(-1, ids.unsqueeze(-1)).squeeze(-1), -(logs.exp() * logs).sum(-1)


def _compiler() -> Function:
    """Returns torch.compile for fixed shapes; gradients may be computed again from what was kept."""
    functorch: Any = importlib.import_module("torch._functorch.config")
    functorch.donated_buffer = False
    return partial(torch.compile, dynamic=False)


def _compiled() -> Provider:
    compiled = _compiler()

    def gradient(dy: torch.Tensor, y: torch.Tensor, dim: int) -> torch.Tensor:
        return y * (dy - (dy * y).sum(dim, keepdim=True))

    softmax, log_softmax = compiled(lambda x, dim: torch.softmax(x, dim)), compiled(lambda x, dim: torch.log_softmax(x, dim))
    tokens = _of_tokens(compiled(_token_log_probs), compiled(_token_entropy))
    return _softmaxes(softmax, log_softmax, None, compiled(gradient)) | tokens


def _cross_entropy(compiled: Function = lambda function: function) -> Provider:
    """Returns torch's cross-entropy, which rounds log-probabilities to the type of logits."""
    cross_entropy = torch.nn.functional.cross_entropy
    return _of_tokens(compiled(partial(cross_entropy, reduction="none")), None, compiled(cross_entropy))


def _liger() -> Provider:
    ops = importlib.import_module("liger_kernel.ops.softmax")
    loss = importlib.import_module("liger_kernel.transformers.functional").liger_cross_entropy

    def gradient(dy: torch.Tensor, y: torch.Tensor, dim: int) -> torch.Tensor:
        result: torch.Tensor = ops._softmax_backward(dy, y, *ops.calculate_settings(y.shape[-1]), False)
        return result

    softmaxes = _softmaxes(
        lambda x, dim: ops.LigerSoftmaxFunction.apply(x), None, lambda x, dim: ops._softmax_forward(x)[0], gradient
    )
    return softmaxes | {"token_both": lambda inputs: _loss(loss, inputs._replace(x=inputs.x.clone()))}  # overwrites x


def _quack() -> Provider:
    module = importlib.import_module("quack.softmax")  # the attribute `quack.softmax` is the function with that name
    tokens = importlib.import_module("quack.cross_entropy")

    def token_backward(inputs: Any) -> Call:
        _, lse = tokens.cross_entropy_fwd(inputs.x, inputs.ids, return_lse=True)
        return partial(tokens.cross_entropy_bwd, inputs.x, inputs.ids, inputs.weights, lse)

    def gradient(dy: torch.Tensor, y: torch.Tensor, dim: int) -> Any:
        return module.softmax_bwd(dy, y)

    softmaxes = _softmaxes(lambda x, dim: module.softmax(x), None, lambda x, dim: module.softmax_fwd(x), gradient)
    of_tokens = _of_tokens(partial(tokens.cross_entropy, reduction="none"), None, tokens.cross_entropy)
    return softmaxes | of_tokens | {"token_backward": token_backward}


_LOADERS: dict[str, Callable[[], Provider]] = {
    "copy": _copy,
    "read": _read,
    "torch": _torch,
    "cross_entropy": _cross_entropy,
    "compile": _compiled,
    "compiled_cross_entropy": lambda: _cross_entropy(_compiler()),
    "liger": _liger,
    "quack": _quack,
    "ours": _ours,
}
NAMES = tuple(_LOADERS)
