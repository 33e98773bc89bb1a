"""The measures that many claims share, each a piece of data that is called with the context.

A measure writes the sentence that says what it measures (``measured``), how that checks a claim
(``check``), and the error that its rules reject by themselves (``rejects``; empty where only a
wrong version shows it). It loads no JAX: functions of the package are given by their names, and
its own functions import inside. One that is given a function that takes ``form`` serves an
`Erratum`. The functions before them measure a perturbation lemma: on many random draws, which
cannot see a constant that is wrong by a factor of two, and on tight instances, which can.
"""

import inspect
import pkgutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar

import numpy as np

from finetti.claims.claim import DERIVED, CheckMethod, Context
from finetti.claims.evidence import Evidence, Measurement, at_most, close, trend, within
from finetti.core.numerics.extremes import largest_of
from finetti.display.formatting import format_number

Function = str | Callable[..., Any]
DRAWS = 10_000
RATIO_RTOL = 1e-9
# A program that runs once is compiled for longer than it runs: without optimization.
RUN_ONCE: Any = {"xla_backend_optimization_level": 0}


def vmap_jit(function: Callable[..., Any], *draws: Any) -> Any:
    """Return ``function`` of every draw; draws are the first axis of each argument."""
    import jax
    import jax.numpy as jnp

    import finetti.attention.networks.activations  # noqa: F401 - inside vmap it could not look at σ

    arrays = jax.tree.map(jnp.asarray, draws)
    return jax.jit(jax.vmap(function), compiler_options=RUN_ONCE)(*arrays)


def ratio(lemma: Callable[..., Any], *instance: Any) -> float:
    """Return measured / bound of ``lemma`` on one instance, as one program.

    One by one its operations would each be compiled.
    """
    import equinox as eqx

    def of_instance(*arguments: Any) -> Any:
        return lemma(*arguments).ratio

    program: Any = eqx.filter_jit(of_instance, compiler_options=RUN_ONCE)  # pyright: ignore[reportCallIssue]
    return float(program(*instance))


def ratios(lemma: Callable[..., Any], *draws: Any) -> np.ndarray:
    """Return measured / bound of ``lemma`` on every draw."""
    return np.asarray(vmap_jit(lambda *draw: lemma(*draw).ratio, *draws))


def ratios_at_most_one(found: np.ndarray, what: str = "draws") -> Measurement:
    """Check that the largest of many ratios is at most 1."""
    return at_most(f"largest ratio on {found.size} random {what}", found.max(), 1 + RATIO_RTOL)


def is_tight(name: str, found: float) -> Measurement:
    """Check that the ratio of an instance that nearly attains the bound is in [0.98, 1]."""
    return within(f"tight instance: {name}", found, 0.98, 1 + RATIO_RTOL)


def log_uniform_scales(
    rng: np.random.Generator, low: float, high: float, *shape: int
) -> np.ndarray:
    """Return 10^uniform(low, high), with two axes of one appended to multiply matrices."""
    return 10.0 ** rng.uniform(low, high, size=(*shape, 1, 1))


def normalized(vectors: np.ndarray) -> np.ndarray:
    """Divide every vector, on the last axis, by its length."""
    return vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)


def unit_vectors(rng: np.random.Generator, *shape: int) -> np.ndarray:
    """Draw vectors of length 1, on the last axis."""
    return normalized(rng.normal(size=shape))


def perturbed_copies(rng: np.random.Generator, arrays: list[np.ndarray]) -> list[np.ndarray]:
    """Return perturbed copies; each draw perturbs at least one array, by a relative size between
    1e-4 and 1."""
    count = len(arrays[0])
    moves = rng.integers(0, 2, size=(len(arrays), count))
    moves[rng.integers(0, len(arrays), size=count), np.arange(count)] = 1
    moved = []
    for array, move in zip(arrays, moves, strict=True):
        step = (move * 10.0 ** rng.uniform(-4, 0, size=count)).reshape(-1, *[1] * (array.ndim - 1))
        moved.append(array + step * np.abs(array).mean() * rng.normal(size=array.shape))
    return moved


def in_form(function: Function, form: str) -> Callable[..., Any]:
    """The function itself, or of this name; with its ``form``, if it takes one.

    >>> in_form("math.sqrt", "printed")(4.0)
    2.0
    """
    found: Any = pkgutil.resolve_name(function) if isinstance(function, str) else function
    try:
        takes_form = "form" in inspect.signature(found).parameters
    except ValueError:  # some functions written in C have no signature
        takes_form = False
    return partial(found, form=form) if takes_form else found


@dataclass(frozen=True)
class Ratio:
    """measured / bound of a lemma: at most 1 on random draws, in [0.98, 1] on tight instances.

    In the printed form only tight instances are measured, and their rule is that the ratio is at
    most 1.

    Args:
        lemma: that answers with an object that has a ``ratio``, as those of
            `finetti.attention.lipschitz`.
        draw: generator → arrays whose first axis is that of the draws; several for several shapes.
        tight: name → function that makes the lemma's arguments.
        arguments: arrays of one draw → the lemma's arguments; as they are by default.
        fails_at: names of the tight instances that break the printed form; all by default.
        limits: name → what the ratio of an instance may be, where that is not [0.98, 1].
        note: one more sentence for readers.
    """

    lemma: Function
    draw: Callable[[np.random.Generator], tuple] | tuple[Callable, ...]
    tight: Mapping[str, Callable[[], tuple]]
    arguments: Callable[..., tuple] | None = None
    fails_at: tuple[str, ...] = ()
    limits: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    note: str = ""

    check: ClassVar = CheckMethod.TIGHT

    @property
    def measured(self) -> str:
        """What is measured, in one sentence."""
        tight = "; ".join(self.tight)
        return (
            "Both sides of the inequality, on random draws, and on instances that nearly attain it "
            f"({tight})."
        )

    @property
    def rejects(self) -> str:
        """The factor that the tight instances notice."""
        tight = set(self.tight) - set(self.limits)
        return "a bound larger or smaller by a factor of 1.021" if tight else ""

    def __call__(self, context: Context, form: str = DERIVED) -> Evidence:
        """Measure the ratios."""
        lemma = in_form(self.lemma, form)
        if form != DERIVED:
            return Evidence(
                *(
                    at_most(
                        f"{name}: measured / bound",
                        ratio(lemma, *self.tight[name]()),
                        1 + RATIO_RTOL,
                    )
                    for name in self.fails_at or self.tight
                )
            )
        found = np.concatenate(list(self._drawn(context, lemma)))
        median = f"The median ratio of the random draws is {np.median(found):.2g}."
        return Evidence(
            ratios_at_most_one(found),
            *(self._tight(name, ratio(lemma, *make())) for name, make in self.tight.items()),
            note=f"{median} {self.note}".rstrip(),
        )

    def _drawn(self, context: Context, lemma: Callable[..., Any]) -> Iterable[np.ndarray]:
        def of_draw(*arrays: Any) -> Any:
            return lemma(*(self.arguments(*arrays) if self.arguments else arrays))

        draws = self.draw if isinstance(self.draw, tuple) else (self.draw,)
        for number, draw in enumerate(draws):
            yield ratios(of_draw, *draw(context.draws(*([number] if number else []))))

    def _tight(self, name: str, found: float) -> Measurement:
        if name not in self.limits:
            return is_tight(name, found)
        return within(f"tight instance: {name}", found, *self.limits[name])


@dataclass(frozen=True)
class Agreement:
    """Two routes to one array: their largest difference over many draws, relative to the second.

    Args:
        routes: draws → both arrays by the name of what is compared.
        draw: generator → the arguments of the routes.
        tolerance: of the difference over the largest entry of the second array.
        sides: what the two routes are, for the sentence.
        trials: how many draws, quick and on paper's scale.
        absolute: do not divide.
    """

    routes: Callable[..., Mapping[str, tuple[Any, Any]]]
    draw: Callable[[np.random.Generator], tuple]
    tolerance: float
    sides: str = "the two sides"
    trials: tuple[int, int] = (10, 100)
    absolute: bool = False

    check: ClassVar = CheckMethod.IDENTITY

    @property
    def measured(self) -> str:
        """What is measured, in one sentence."""
        return f"The difference of {self.sides}, on {self.trials[0]} random draws or more."

    @property
    def rejects(self) -> str:
        """The difference that is noticed."""
        of = "" if self.absolute else " of the largest entry"
        return f"a difference of more than {format_number(self.tolerance)}{of}"

    def __call__(self, context: Context, form: str = DERIVED) -> Evidence:
        """Measure the largest difference of each pair of arrays."""
        routes, errors = in_form(self.routes, form), {}
        for trial in range(context.pick(quick=self.trials[0], paper=self.trials[1])):
            for name, pair in routes(*self.draw(context.draws(trial))).items():
                one, other = map(np.asarray, pair)
                error = np.abs(one - other).max()
                size = 1.0 if self.absolute else np.abs(other).max()
                errors.setdefault(name, []).append(error / size)
        tolerance = self.tolerance
        return Evidence(*(close(name, largest_of(e), tolerance) for name, e in errors.items()))


def slope_of_means(sizes: Sequence[int], samples: Sequence[np.ndarray]) -> float:
    """The power of the sizes in the means of the samples, which count by their standard errors."""
    from finetti.core.statistics.power_laws import power_law_slope

    means, errors = [float(each.mean()) for each in samples], None
    if all(each.size > 1 for each in samples):
        errors = [float(each.std(ddof=1) / np.sqrt(each.size)) for each in samples]
    return power_law_slope(list(sizes), means, errors).value


@dataclass(frozen=True)
class PowerLaw:
    """The slope of an error in a size, both logarithmic, with its chart; perhaps below a bound.

    Args:
        error: (context, size) → the error, or independent ones, whose mean is taken.
        sizes: at least three.
        slope: the lowest and the highest that is allowed.
        size_name, error_name: for the chart and the sentence.
        curves: names of several errors, each with its slope; ``error`` takes one more argument.
        bound: (context, size) → what the errors should be below.
        share: the lowest and the highest that the largest error may be, over the bound.
        check: simulation, unless the error is exact.
    """

    error: Function
    sizes: Sequence[int]
    slope: tuple[float, float]
    size_name: str = "size"
    error_name: str = "error"
    curves: tuple[str, ...] = ()
    bound: Callable[[Context, int], float] | None = None
    share: tuple[float, float] = (0.0, 1.0)
    check: CheckMethod = CheckMethod.SIMULATION

    @property
    def measured(self) -> str:
        """What is measured, in one sentence."""
        first, last = self.sizes[0], self.sizes[-1]
        beside = ", and its largest share of the bound" if self.bound else ""
        return f"The {self._slope}, {first} to {last}{beside}."

    @property
    def rejects(self) -> str:
        """The slopes that are noticed."""
        return "a slope outside of [{:g}, {:g}]".format(*self.slope)

    @property
    def _slope(self) -> str:
        return f"slope of the {self.error_name} in the {self.size_name}"

    def __call__(self, context: Context, form: str = DERIVED) -> Evidence:
        """Measure the slopes, and the share of the bound."""
        error, measurements, records = in_form(self.error, form), [], []
        for curve in self.curves or (None,):
            which = () if curve is None else (curve,)
            samples = [np.atleast_1d(error(context, size, *which)) for size in self.sizes]
            name = f"{curve}: {self._slope}" if curve else self._slope
            measurements.append(within(name, slope_of_means(self.sizes, samples), *self.slope))
            records += [
                {"size": size, "error": float(sample.mean()), "curve": curve}
                for size, sample in zip(self.sizes, samples, strict=True)
            ]
        axes, title = {"size": self.size_name, "error": self.error_name}, f"The {self._slope}"
        options: dict[str, Any] = {"color": "curve"} if self.curves else {}
        if self.bound is not None:
            options["reference"] = "bound"
            for each in records:
                each["bound"] = self.bound(context, each["size"])
            used = largest_of(each["error"] / each["bound"] for each in records)
            measurements.append(within(f"largest {self.error_name} / bound", used, *self.share))
        return Evidence(*measurements, charts=(trend(records, axes, title, log_y=True, **options),))


@dataclass(frozen=True)
class MonteCarlo:
    """The mean of independent draws against a closed form, in standard errors.

    A true claim has a comparison beyond 4 of them by chance once in 16 000: ``false_alarm`` of the
    claim is the number of comparisons times 6.4e-5, more where the draws have heavy tails.

    Args:
        sample: (context, inputs) → arrays (draws, comparisons) by name.
        exact: inputs → the exact means by name.
        inputs: generator → the inputs of both.
        sides: what is compared, for the sentence.
        factor: multiplies the closed form, for wrong versions.
    """

    sample: Callable[[Context, Any], Mapping[str, np.ndarray]]
    exact: Callable[[Any], Mapping[str, np.ndarray]]
    inputs: Callable[[np.random.Generator], Any]
    sides: str = "the mean of many draws and its closed form"
    factor: float = 1.0

    check: ClassVar = CheckMethod.SIMULATION

    @property
    def measured(self) -> str:
        """What is measured, in one sentence."""
        return f"The difference of {self.sides}, in standard errors."

    def __call__(self, context: Context) -> Evidence:
        """Measure the distance of every comparison."""
        inputs = self.inputs(context.draws())
        exacts, measurements, note = self.exact(inputs), [], ""
        for name, draws in self.sample(context, inputs).items():
            exact = self.factor * exacts[name]
            mean, error = draws.mean(axis=0), draws.std(axis=0, ddof=1) / np.sqrt(len(draws))
            for number, distance in enumerate(np.abs(mean - exact) / error, start=1):
                title = f"{name} {number}: |mean − exact| in standard errors"
                measurements.append(at_most(title, distance, 4.0))
            first = f"{mean[0]:.5f} ± {error[0]:.5f} against {exact[0]:.5f}"
            note = note or f"{len(draws)} draws; the first: {first}."
        return Evidence(*measurements, note=note)
