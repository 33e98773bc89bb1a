"""Norms measured on weights: arrays, or any network that calls its arrays by the same names."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from finetti.attention.networks.softmax_constants import softmax_constant
from finetti.core.errors import UnsupportedError, bad_argument
from finetti.core.norms import max_column_norm, max_row_norm, spectral
from finetti.core.numbers import largest_of

_NAMES = (
    "query_weights",
    "key_weights",
    "score_matrix",
    "value_weights",
    "output_weights",
    "activation",
    "activation_lipschitz",
    "attention",
    "norm",
    "norm_lipschitz",
)


@dataclass(frozen=True)
class Measured:
    """Sizes and norms by the names of the descriptions' fields; C_Norm if it is not softmax's."""

    sizes: dict[str, int]
    norms: dict[str, float]
    constant: float | None = None


def _part(weights: Any, name: str) -> Any:
    """An array or a part by name, of a mapping or of a network; None where there is none."""
    return weights.get(name) if isinstance(weights, Mapping) else getattr(weights, name, None)


def _check_names(weights: Any, owner: str, known: tuple[str, ...] = _NAMES) -> None:
    """Refuse a mapping with a name that nobody reads: a misspelled array is not an absent one."""
    unknown = set(weights) - set(known) if isinstance(weights, Mapping) else None
    if unknown:
        advice = f"Known names: {', '.join(known)}."
        raise bad_argument("weights", owner, "arrays by known names", repr(min(unknown)), advice)


def _array(weights: Any, name: str, owner: str, rank: int) -> NDArray[np.float64]:
    value = _part(weights, name)
    if value is None:
        advice = "Give a network of `finetti.attention`, or a mapping of arrays."
        raise bad_argument(
            "weights", owner, f"weights with `{name}`", type(weights).__name__, advice
        )
    array = np.asarray(value, dtype=np.float64)
    if array.ndim != rank:
        raise bad_argument(name, owner, f"an array of {rank} axes", f"shape {array.shape}")
    return array


def _scale(weights: Any, owner: str) -> float:
    """What multiplies the scores; attention that is not softmax has no bound here."""
    attention = _part(weights, "attention")
    if attention is None:
        return 1.0
    if type(attention).__name__ != "Softmax":
        raise UnsupportedError(
            f"{owner} measures softmax heads, and these are {type(attention).__name__}. Nearest "
            "bound: those of paper E (RBF scores); `finetti bound --list` lists them."
        )
    return float(attention.scale)


def _steepness(weights: Any) -> float:
    given = _part(weights, "activation_lipschitz")
    if given is not None:
        return float(given)
    activation = _part(weights, "activation")
    if isinstance(activation, str):
        advice = "Give its constant L_σ as `activation_lipschitz`."
        raise bad_argument("activation", "the weights", "an Activation", repr(activation), advice)
    return 1.0 if activation is None else float(activation.lipschitz)


def _norm_constant(weights: Any) -> float | None:
    """C_Norm where Norm is not softmax, whose constant the classes know."""
    given, norm = _part(weights, "norm_lipschitz"), _part(weights, "norm")
    if given is not None and not callable(given):  # a `Head` has a method, which asks its `norm`
        return float(given)
    if norm is None or type(norm).__name__ == "SoftmaxNormalization":
        return None
    return float(norm.lipschitz())


def norm_lipschitz(found: Sequence[Measured]) -> dict[str, float]:
    """The largest C_Norm as a field of the classes; nothing if all are softmax."""
    given = [each.constant for each in found]
    if all(constant is None for constant in given):
        return {}
    return {"norm_lipschitz": largest_of(softmax_constant() if c is None else c for c in given)}


def _score_matrix(weights: Any, owner: str, rank: int) -> NDArray[np.float64]:
    if _part(weights, "score_matrix") is not None:
        return _scale(weights, owner) * _array(weights, "score_matrix", owner, rank)
    queries = _array(weights, "query_weights", owner, rank)
    keys = _array(weights, "key_weights", owner, rank)
    return _scale(weights, owner) * (queries @ np.swapaxes(keys, -1, -2))


def _arrays(weights: Any, owner: str, rank: int) -> tuple[Any, Any, Any]:
    """W_QK, W_V, and W_C or None."""
    given = _part(weights, "output_weights")
    outputs = None if given is None else _array(weights, "output_weights", owner, rank)
    scores = _score_matrix(weights, owner, rank)
    return scores, _array(weights, "value_weights", owner, rank), outputs


def _norms(scores: Any, values: Any) -> dict[str, float]:
    return {
        "value_norm": float(spectral(values)),
        "value_column_norm": float(max_column_norm(values)),
        "score_row_norm": float(max_row_norm(scores)),
    }


def _measured(
    scores: Any, values: Any, outputs: Any, steepness: float, constant: float | None
) -> Measured:
    out = steepness * (1.0 if outputs is None else float(spectral(outputs)))
    # W_QK has one output per row: as many as the query is wide, also in cross-attention.
    sizes = {"width": scores.shape[0], "head_dimension": values.shape[1]}
    return Measured(sizes, {**_norms(scores, values), "out_lipschitz": out}, constant)


def measure_head(weights: Any, owner: str) -> Measured:
    """One head."""
    _check_names(weights, owner)
    constant = _norm_constant(weights)
    score, phi_in, phi_out = (_part(weights, name) for name in ("score", "phi_in", "phi_out"))
    if score is not None and hasattr(score, "matrix") and hasattr(phi_in, "weights"):
        # φ_in may have an activation of its own; the values' norms grow with its constant.
        inner = float(phi_in.activation.lipschitz)
        values = inner * np.asarray(phi_in.weights, dtype=np.float64)
        return _measured(_bilinear(score), values, None, _lipschitz(phi_out), constant)
    return _measured(*_arrays(weights, owner, 2), _steepness(weights), constant)


def _bilinear(score: Any) -> NDArray[np.float64]:
    """W_QW_Kᵀ, multiplied in float64 whatever the weights are kept in."""
    if type(score).__name__ == "BilinearScore":
        queries, keys = (
            np.asarray(each, dtype=np.float64) for each in (score.query_weights, score.key_weights)
        )
        return queries @ keys.T
    return np.asarray(score.matrix, dtype=np.float64)


def _lipschitz(phi: Any) -> float:
    """L of φ(x) = Wᵀσ(x), in float64; of another map as it says itself."""
    if type(phi).__name__ == "LinearMap":
        return float(phi.activation.lipschitz) * float(
            spectral(np.asarray(phi.weights, dtype=np.float64))
        )
    return float(phi.lipschitz)


def measure_heads(weights: Any, owner: str) -> tuple[Measured, ...]:
    """Several heads, whose arrays have the heads as their first axis."""
    inside = _part(weights, "heads")
    if inside is not None and hasattr(inside, "query_weights"):  # SelfAttention
        weights = inside
    if hasattr(weights, "summed"):  # ConcatenatedHeads
        weights = weights.summed()
    _check_names(weights, owner)
    scores, values, outputs = _arrays(weights, owner, 3)
    common = _steepness(weights), _norm_constant(weights)
    outputs = [None] * len(values) if outputs is None else outputs
    heads = zip(scores, values, outputs, strict=True)
    return tuple(_measured(*head, *common) for head in heads)


def measure_layers(weights: Any, owner: str) -> tuple[Measured, ...]:
    """The layers of a deep network, each with W_C as a trained matrix."""
    _check_names(weights, owner, ("layers",))
    found = weights if isinstance(weights, Sequence) else _part(weights, "layers")
    if found is None or not len(found):
        raise bad_argument("weights", owner, "a network with layers, or a list", type(weights))
    measured = []
    for layer in found:
        if _part(layer, "feed_forward") is not None:
            raise UnsupportedError(
                f"{owner} assumes that tokens are projected onto the unit ball, and this network "
                "has feed-forward parts and skips instead. Nearest bound: E-thm-C.5."
            )
        _check_names(layer, owner)
        outputs = _array(layer, "output_weights", owner, 2)
        scores, values, _ = _arrays(layer, owner, 2)
        norms = {
            **_norms(scores, values),
            "output_norm": float(spectral(outputs)),
            "score_norm": float(spectral(scores)),
            "output_column_norm": float(max_column_norm(outputs)),
        }
        width = max(*scores.shape, outputs.shape[1])
        sizes = {"width": width, "head_dimension": values.shape[1]}
        measured.append(Measured(sizes, norms, _norm_constant(layer)))
    return tuple(measured)


def readout_norm(readout: Any, owner: str) -> float:
    """B_w of a vector, or of a `TokenReadout` with one output: the classes give one number."""
    vector = np.asarray(getattr(readout, "weights", readout), dtype=np.float64)
    if vector.ndim not in (1, 2) or vector.shape[1:] not in ((), (1,)):
        advice = "Bound each output by itself: one column at a time."
        requirement = "a vector (d,): the class has one output"
        raise bad_argument("readout", owner, requirement, f"shape {vector.shape}", advice)
    return float(np.linalg.norm(vector))


def steepest(weights: Any) -> float:
    """L_σ: the largest of the layers' activations."""
    found = weights if isinstance(weights, Sequence) else _part(weights, "layers")
    return largest_of(_steepness(layer) for layer in found)
