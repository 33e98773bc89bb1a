"""A LoRA adapter on its base: every factor finds its matrix, or is refused by name."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from finetti.audit.layouts.layout_table import Layout
from finetti.audit.layouts.tensor_mapping import ATTENTION
from finetti.audit.readers.lora_file import LoraAdapter, LowRankFactors
from finetti.audit.readers.stored_tensor import StoredCheckpoint, StoredTensor, tensor_by_name
from finetti.core.errors import InputError

Spot = tuple[tuple[int, ...], str]  # a layer's number, and a role


@dataclass(frozen=True)
class MatrixStep:
    """Δ of one matrix of a layer, as A (rank, inputs) and the rows of B that belong to it."""

    factors: LowRankFactors
    rows: slice

    def read(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return thin factors (rank, inputs) and (rank, outputs): Δ, as acting on rows, is LᵀR."""
        inner, outer = self.factors.read()
        return inner, outer[self.rows].T

    def add_to(self, matrix: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return W₀ + Δ for a matrix (outputs, inputs)."""
        inner, outer = self.factors.read()
        return matrix + outer[self.rows] @ inner


def add_adapter(
    adapter: LoraAdapter, base: StoredCheckpoint, layout: Layout
) -> tuple[StoredCheckpoint, Mapping[Spot, MatrixStep]]:
    """Return W₀ + s·BA, whose matrices are summed when read, and the step of each matrix.

    s = alpha/r, or alpha/√r with ``use_rslora`` (Hu et al. 2021; Kalajdzievski 2023).
    """
    steps: dict[Spot, MatrixStep] = {}
    tensors = dict(base.tensors)
    for module, factors in adapter.factors.items():
        target = tensor_by_name(f"{module}.weight", base.tensors)
        if target is None:
            raise InputError(
                f"The adapter has factors for {module}, but the base {base.name} has no such "
                "matrix."
            )
        inside = layout.place(target.name) is not None
        turned = inside and layout.is_transposed
        _check_factors(adapter, factors, target, turned)
        if inside and adapter.fan_in_fan_out not in (None, turned):
            raise InputError(
                f"{module} is stored as {'inputs × outputs' if turned else 'outputs × inputs'} by "
                f"the layout {layout.name}, but the adapter says fan_in_fan_out = "
                f"{adapter.fan_in_fan_out}."
            )
        tensors[target.name] = _summed(target, factors, turned)
        steps |= _steps(target.name, factors, layout)
    for name, tensor in adapter.whole.items():
        key = _whole_key(name, tensor, base.tensors, layout)
        tensors[key] = replace(tensor, name=key)
    return StoredCheckpoint(f"{adapter.name} on {base.name}", tensors, base.config), steps


def _check_factors(
    adapter: LoraAdapter, factors: LowRankFactors, target: StoredTensor, turned: bool
) -> None:
    shape = target.shape[::-1] if turned else target.shape
    if factors.shape != shape:
        raise InputError(
            f"The factors of {factors.module} make a matrix of shape {factors.shape}; expected "
            f"{shape} as (outputs, inputs) of {target.name} in the base."
        )
    if target.name in adapter.whole:
        raise InputError(f"The adapter has {target.name} both whole and as factors.")


def _steps(name: str, factors: LowRankFactors, layout: Layout) -> dict[Spot, MatrixStep]:
    """Return the step of a matrix in a layer, or those of the three parts of a fused one."""
    place = layout.place(name)
    if place is None:
        return {}
    if place.role != "fused":
        return {(place.number, place.role): MatrixStep(factors, slice(None))}
    size = factors.shape[0] // 3
    return {
        (place.number, each): MatrixStep(factors, slice(third * size, (third + 1) * size))
        for third, each in enumerate(ATTENTION)
    }


def _summed(target: StoredTensor, factors: LowRankFactors, turned: bool) -> StoredTensor:
    def load() -> NDArray[np.float64]:
        inner, outer = factors.read()
        total = target.read()
        total += inner.T @ outer.T if turned else outer @ inner
        return total

    return replace(target, kind="F64", load=load)


def _whole_key(
    name: str, tensor: StoredTensor, tensors: Mapping[str, StoredTensor], layout: Layout
) -> str:
    """Return the name in the base of a parameter that is saved whole: a bias or a norm of a layer;
    heads outside the layers may be new."""
    old = tensor_by_name(name, tensors)
    if layout.inside_a_layer(name):
        known = old is not None and layout.place(old.name) is not None
        if old is None or not known or tensor.shape != old.shape or len(tensor.shape) != 1:
            raise InputError(
                f"The adapter saves {name[:120]} of shape {tensor.shape} whole, which is neither "
                "a bias nor a norm of a layer of the base. Merge it into its base and audit the "
                "result."
            )
    elif old is not None and old.shape != tensor.shape:
        raise InputError(f"{name[:120]} has shape {tensor.shape}, but {old.shape} in the base.")
    return name if old is None else old.name
