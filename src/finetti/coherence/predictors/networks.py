"""Networks that read a context, called as network(keys, values, query)."""

from collections.abc import Callable
from typing import Any

import numpy as np

from finetti.coherence.predictors.base import RegressionPredictor, read_only
from finetti.core.errors import InputError
from finetti.latent.base import Floats
from finetti.training.pairs import pair_of


class NetworkPredictor(RegressionPredictor):
    """An Equinox or Flax network, or a pair (init, apply), for one context and one query.

    ``network(keys (L, d_k), values (L, d_v), query (d_k,))`` answers (d_v,), or with a pair of mean
    and variance, noise included. Weights of a pair, or of a Flax linen module, are ``params``, or
    else ``init(key, keys, values, query)`` of the ``seed``.
    """

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
        if isinstance(found, tuple):
            self.gives_variance = True
            return np.asarray(found[0]), np.asarray(found[1])
        return np.asarray(found), None

    def law(self, query: Floats, keys: Floats, values: Floats) -> Any:
        """The law, if the network gives one."""
        if self._run is None:
            self.mean(query, keys, values)
        return super().law(query, keys, values)

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
    """A PyTorch module (extra ``torch``), called as module(keys, values, query), one at a time."""

    def __init__(self, module: Any, name: str = ""):
        self.module, self.name = module, name or type(module).__name__

    def answer(
        self, query: Floats, keys: Floats, values: Floats, variance: bool
    ) -> tuple[Floats, Floats | None]:
        """In evaluation mode, without gradients, in the precision of its weights."""
        import torch  # pyright: ignore[reportMissingImports]

        weights = next(iter(self.module.parameters()), None)
        dtype = torch.float64 if weights is None else weights.dtype
        training = self.module.training
        self.module.eval()
        try:
            with torch.no_grad():
                answers = [
                    [self._one(torch, dtype, rows, seen, place) for place in asked]
                    for asked, rows, seen in zip(query, keys, values, strict=True)
                ]
        finally:
            self.module.train(training)
        return np.array(answers), None

    def _one(self, torch: Any, dtype: Any, *arrays: Floats) -> Floats:
        # Copies, since a tensor cannot be read-only.
        given = (torch.tensor(np.ascontiguousarray(each), dtype=dtype) for each in arrays)
        return self.module(*given).double().numpy()


class FunctionPredictor(RegressionPredictor):
    """A plain function of (keys, values, query) in NumPy, called one query at a time."""

    def __init__(self, function: Callable[..., Any], name: str = ""):
        self.function, self.name = function, name or getattr(function, "__name__", "function")

    def answer(
        self, query: Floats, keys: Floats, values: Floats, variance: bool
    ) -> tuple[Floats, Floats | None]:
        """One call per query."""
        given = map(read_only, (query, keys, values))
        found = [
            [np.array(self.function(rows, seen, place)) for place in asked]
            for asked, rows, seen in zip(*given, strict=True)
        ]
        try:
            return np.array(found, np.float64), None
        except (TypeError, ValueError) as error:
            raise InputError(
                f"{self.name} must answer every query with an array of shape (d_v,)."
            ) from error
