"""Labels of any kind as the unit vectors of their classes."""

from typing import Any

import numpy as np

from finetti.core.arguments import Floats, check_finite, one_hot
from finetti.core.errors import InputError, bad_argument


def as_classes(labels: Any, n_axes: int, owner: str) -> Floats:
    """The unit vectors of labels of any kind, (L,) or (L, 1), or with an axis of contexts before.

    Rows that are unit vectors already, of ``n_axes`` axes and at least two columns, stay as they
    are: they may have classes that no row is of.

    >>> as_classes(["no", "yes", "no"], 2, "order_defect")
    array([[1., 0.],
           [0., 1.],
           [1., 0.]])
    """
    array = np.asarray(labels)
    if array.ndim == n_axes and array.shape[-1] >= 2 and _are_units(array):
        return array.astype(np.float64)
    if array.ndim == n_axes and array.shape[-1] == 1:
        array = array[..., 0]
    if array.ndim != n_axes - 1:
        wanted = "labels, one per key, or rows of 0 and 1 of sum 1"
        raise bad_argument("values", owner, wanted, f"shape {array.shape}")
    classes, letters = _told_apart(array, owner)
    if len(classes) < 2:  # no answer could ever move
        raise bad_argument("values", owner, "labels of at least two classes", f"{len(classes)}")
    return one_hot(letters.reshape(array.shape), len(classes))


def _are_units(rows: Any) -> bool:
    return bool(np.isin(rows, (0, 1)).all() and (rows.sum(axis=-1) == 1).all())


def _told_apart(labels: Any, owner: str) -> tuple[Any, Any]:
    """The classes, and which of them each label is."""
    from sklearn.utils.multiclass import check_classification_targets

    if np.issubdtype(labels.dtype, np.floating):
        check_finite(labels, "values", owner)
    try:
        check_classification_targets(labels.ravel())
        return np.unique(labels, return_inverse=True)
    except (TypeError, ValueError) as error:  # measurements, or words among numbers
        raise InputError(f"{owner} needs labels of classes as values: {error}") from error
