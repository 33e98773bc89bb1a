"""Networks that read a context, called as network(keys, values, query)."""

from collections.abc import Callable
from typing import Any

import numpy as np

from finetti.coherence.predictors.base import RegressionPredictor, read_only
from finetti.core.arguments import Floats
from finetti.core.errors import InputError
from finetti.core.numbers import largest_of
from finetti.training.pairs import pair_of


class NetworkPredictor(RegressionPredictor):
    """An Equinox or Flax network, or a pair (init, apply), for one context and one query.

    ``network(keys (L, d_k), values (L, d_v), query (d_k,))`` answers (d_v,), or with a pair of mean
    and variance, noise included. Weights of a pair, or of a Flax linen module, are ``params``, or
    else ``init(key, keys, values, query)`` of the ``seed``.
    """

    gives_variance = None

    def __init__(self, network: Any, params: Any = None, seed: int = 0, name: str = ""):
        self.network, self.params, self.seed = network, params, seed
        self.name = name or getattr(network, "__name__", type(network).__name__)
        self.pair = pair_of(network)
        self._run: Callable[..., Any] | None = None

    def answer(
        self, query: Floats, keys: Floats, values: Floats, variance: bool
    ) -> tuple[Floats, Floats | None]:
        """All contexts and queries in one compiled call, in float64."""
        from finetti.core.precision import float64

        with float64():
            if self._run is None:
                self._run = self._compiled(keys[0], values[0], query[0, 0])
            found = self._run(keys, values, query)
        self.gives_variance = isinstance(found, tuple)
        mean, spread = found if isinstance(found, tuple) else (found, None)
        return np.asarray(mean), None if spread is None else np.asarray(spread)

    def _compiled(self, keys: Floats, values: Floats, query: Floats) -> Callable[..., Any]:
        import jax

        call = self.network
        if self.pair is not None:
            init, apply = self.pair
            params = self.params
            if params is None:
                params = init(jax.random.key(self.seed), keys, values, query)

            def call(keys: Any, values: Any, query: Any) -> Any:
                return apply(params, keys, values, query)

        over_queries = jax.vmap(lambda *context: call(*context), in_axes=(None, None, 0))
        return jax.jit(jax.vmap(over_queries))


class TorchModulePredictor(RegressionPredictor):
    """A PyTorch module (extra ``torch``), called as module(keys, values, query), one at a time.

    It answers as a `NetworkPredictor` does.
    """

    gives_variance = None

    def __init__(self, module: Any, name: str = ""):
        self.module, self.name = module, name or type(module).__name__

    def answer(
        self, query: Floats, keys: Floats, values: Floats, variance: bool
    ) -> tuple[Floats, Floats | None]:
        """In evaluation mode, without gradients, in the precision of its weights."""
        import torch  # pyright: ignore[reportMissingImports]

        weights = next(iter(self.module.parameters()), None)
        dtype = torch.float64 if weights is None else weights.dtype
        self.precision = largest_of(self.precision, float(torch.finfo(dtype).eps))
        training = self.module.training
        self.module.eval()
        try:
            with torch.no_grad():
                answers = [
                    self._one(torch, dtype, rows, seen, place)
                    for asked, rows, seen in zip(query, keys, values, strict=True)
                    for place in asked
                ]
        finally:
            self.module.train(training)
        mean, spread = _gathered(self.name, answers, query.shape[:2])
        self.gives_variance = spread is not None
        return mean, spread

    def _one(self, torch: Any, dtype: Any, *arrays: Floats) -> list[Floats]:
        # Copies, since a tensor cannot be read-only.
        given = (torch.tensor(np.ascontiguousarray(each), dtype=dtype) for each in arrays)
        return [each.double().numpy() for each in _parts(self.name, self.module(*given))]


class FunctionPredictor(RegressionPredictor):
    """A plain function of (keys, values, query) in NumPy, called one query at a time.

    It answers with a mean (d_v,), or with a pair of mean and variance, noise included; for d_v = 1
    the mean, and always the variance, may be a number.
    """

    gives_variance = None

    def __init__(self, function: Callable[..., Any], name: str = ""):
        self.function, self.name = function, name or getattr(function, "__name__", "function")

    def answer(
        self, query: Floats, keys: Floats, values: Floats, variance: bool
    ) -> tuple[Floats, Floats | None]:
        """One call per query."""
        given = map(read_only, (query, keys, values))
        answers = [
            # Copies, since a function may answer in the same array each time.
            [np.array(each) for each in _parts(self.name, self.function(rows, seen, place))]
            for asked, rows, seen in zip(*given, strict=True)
            for place in asked
        ]
        mean, spread = _gathered(self.name, answers, query.shape[:2])
        self.gives_variance = spread is not None
        return mean, spread


def _parts(name: str, returned: Any) -> tuple[Any, ...]:
    """What one call returned: a mean, or mean and variance."""
    parts = returned if isinstance(returned, tuple) else (returned,)
    if len(parts) > 2:
        raise InputError(
            f"{name} returned a tuple of {len(parts)}. Return a mean, as an array of shape (d_v,), "
            "or a pair (mean, variance)."
        )
    return parts


def _gathered(name: str, answers: list[Any], batch: tuple[int, ...]) -> tuple[Floats, Any]:
    """Means and variances (B, Q, …) of calls for B contexts with Q queries each."""
    shapes = sorted({str(tuple(each.shape for each in parts)) for parts in answers})
    if len(shapes) > 1:
        raise InputError(
            f"{name} returned arrays of shapes {' and '.join(shapes)}. Return a mean of shape "
            "(d_v,), or a pair (mean, variance), at every call."
        )
    mean, *spread = (np.array(each) for each in zip(*answers, strict=True))
    mean, *spread = (each.reshape(*batch, *each.shape[1:]) for each in (mean, *spread))
    return mean, spread[0] if spread else None
