"""Attention on real data, beside the usual estimators: nested cross-validation, time, error bars.

    python examples/real_data.py

Digits (1797 images, 10 classes) as sets of patches, and diabetes (442 patients, 10 numbers each).
Inner folds choose parameters, outer folds are seen once. Several minutes on two cores.
"""

import argparse
import functools

import numpy as np
import pandas as pd
from scipy.stats import norm
from sklearn.datasets import load_diabetes, load_digits
from sklearn.ensemble import (
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.gaussian_process import GaussianProcessClassifier, GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import RidgeClassifierCV, RidgeCV
from sklearn.model_selection import GridSearchCV, KFold, StratifiedKFold, cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import LabelBinarizer, StandardScaler
from sklearn.svm import SVC

from finetti.display import line_chart
from finetti.estimators import (
    ConditionalMeanClassifier,
    ConditionalMeanRegressor,
    KernelSmootherRegressor,
    RandomFeatureAttentionClassifier,
    RandomFeatureAttentionRegressor,
)

POWERS = np.logspace(-4, 2, 7)
LEVELS = np.linspace(0.05, 0.95, 19)


def patches(images, size=3):
    """A set for each image: its patches with their positions, and the mean of them as the query."""
    windows = np.lib.stride_tricks.sliding_window_view(images, (size, size), axis=(1, 2))
    n, rows, columns = windows.shape[:3]
    grid = np.stack(np.meshgrid(*[np.linspace(-1, 1, rows)] * 2, indexing="ij"), axis=-1)
    pixels = windows.reshape(n, rows * columns, -1) / 2
    places = np.broadcast_to(grid.reshape(-1, 2), (n, rows * columns, 2))
    tokens = np.concatenate([pixels, places], axis=2)
    return np.concatenate([tokens.mean(axis=1, keepdims=True), tokens], axis=1).astype(np.float32)


class KernelRidgeClassifier(KernelRidge):
    """Kernel ridge on ±1, one output for each class."""

    def fit(self, X, y):
        """One column of ±1 for each class."""
        self.labels_ = LabelBinarizer(neg_label=-1).fit(y)
        return super().fit(X, self.labels_.transform(y))

    def predict(self, X):
        """The class of the largest output."""
        return self.labels_.classes_[super().predict(X).argmax(axis=1)]


def compare(models, y, metric, folds):
    """Scores of the outer folds with standard errors, seconds per fit and per 1000 predictions."""
    rows = []
    for name, (model, X) in models.items():
        found = cross_validate(model, X, y, cv=folds, scoring=metric, error_score="raise")
        scores, n_test = found["test_score"], len(y) / len(found["test_score"])
        rows.append(
            {
                "model": name,
                "score": scores.mean(),
                "standard error": scores.std(ddof=1) / len(scores) ** 0.5,
                "fit (s)": np.median(found["fit_time"]),
                "predict 1000 (s)": np.median(found["score_time"]) * 1000 / n_test,
            }
        )
        print(f"  {name}: {scores.mean():.4f}", flush=True)
    return pd.DataFrame(rows).set_index("model").sort_values("score", ascending=False)


def digits(n_rows, folds):
    """Accuracy of classes of images: attention reads patches, the others the pixels."""
    images, y = load_digits(return_X_y=True)
    images, y = images[:n_rows] / 16, y[:n_rows]
    search = functools.partial(GridSearchCV, cv=StratifiedKFold(3, shuffle=True, random_state=1))
    kernels = {"gamma": [0.05, 0.1, 0.2], "alpha": [1e-3, 1e-2, 1e-1]}
    boosting = HistGradientBoostingClassifier(random_state=0)
    models = {
        "CME attention": ConditionalMeanClassifier(n_starts=1, random_state=0),
        "ridge": RidgeClassifierCV(POWERS),
        "support vectors, C = 10": SVC(C=10),
        "RBF kernel ridge": search(
            KernelRidgeClassifier(kernel="rbf"), kernels, scoring="accuracy"
        ),
        # Its own search for the length takes hours here.
        "Gaussian process, fixed length": GaussianProcessClassifier(RBF(2.0), optimizer=None),
        "random forest": RandomForestClassifier(500, random_state=0),
        "gradient boosting": search(boosting, {"learning_rate": [0.05, 0.2]}),
    }
    pairs = {name: (model, images) for name, model in models.items()}
    heads = RandomFeatureAttentionClassifier(100, random_state=0)
    pairs["RFA, 100 heads, patches"] = heads, patches(images.reshape(-1, 8, 8))
    return compare(pairs, y, "accuracy", folds)


def diabetes(n_rows, folds):
    """R² on a table, and the coverage of the error bars with and without the noise."""
    X, y = (part[:n_rows] for part in load_diabetes(return_X_y=True))
    search = functools.partial(GridSearchCV, cv=KFold(3, shuffle=True, random_state=1))
    kernels = {"kernelridge__gamma": np.logspace(-4, 0, 5), "kernelridge__alpha": POWERS}
    kernel = ConstantKernel() * RBF(0.1) + WhiteKernel()
    process = GaussianProcessRegressor(
        kernel, normalize_y=True, n_restarts_optimizer=2, random_state=0
    )
    boosting = HistGradientBoostingRegressor(random_state=0)
    attention = ConditionalMeanRegressor(random_state=0)
    models = {
        "CME attention": attention,
        "kernel smoother": KernelSmootherRegressor(),
        "RFA, 100 heads": make_pipeline(
            StandardScaler(), RandomFeatureAttentionRegressor(100, random_state=0)
        ),
        "ridge": RidgeCV(POWERS),
        "RBF kernel ridge": search(
            make_pipeline(StandardScaler(), KernelRidge(kernel="rbf")), kernels
        ),
        "Gaussian process": process,
        "random forest": RandomForestRegressor(500, random_state=0),
        "gradient boosting": search(boosting, {"learning_rate": [0.01, 0.03, 0.1]}),
    }
    table = compare({name: (model, X) for name, model in models.items()}, y, "r2", folds)
    return table, pd.concat(
        coverage(attention, predictive, X, y, folds) for predictive in (True, False)
    )


def coverage(model, predictive, X, y, folds):
    """How often the interval of each level holds the target, on the outer folds; ± 2 s.e."""
    inside = []
    for train, test in folds.split(X):
        model.fit(X[train], y[train])
        mean, std = model.predict(X[test], return_std=True, predictive=predictive)
        inside.append(np.abs(y[test] - mean)[:, None] <= std[:, None] * norm.ppf(0.5 + LEVELS / 2))
    share, n = np.concatenate(inside).mean(axis=0), len(y)
    error = 2 * np.sqrt(share * (1 - share) / n)
    columns = {"level": LEVELS, "coverage": share, "low": share - error, "high": share + error}
    name = "a new measurement" if predictive else "the function alone"
    return pd.DataFrame({**columns, "error bar of": name, "exact": LEVELS})


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folds", type=int, default=5)
    parser.add_argument("--rows", type=int, help="only the first rows of each, to try it")
    parser.add_argument("--out", default="calibration.svg")
    options = parser.parse_args()
    split = {"n_splits": options.folds, "shuffle": True, "random_state": 0}
    print("Digits: accuracy", flush=True)
    print(digits(options.rows, StratifiedKFold(**split)).round(4).to_string())
    print("Diabetes: R²", flush=True)
    table, covered = diabetes(options.rows, KFold(**split))
    print(table.round(4).to_string())
    title = "CME attention on diabetes: how often an interval holds the target"
    fields = {"color": "error bar of", "low": "low", "high": "high", "reference": "exact"}
    line_chart(covered.to_dict("records"), "level", "coverage", **fields, title=title).save(
        options.out
    )
