"""From a spec to trials: every cell resolved by its kind, every trial with its id."""

import heapq
import json
import math
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from finetti._version import __version__
from finetti.core.errors import FinettiError, InputError
from finetti.studies.canonical import canonical_json, digest, plain
from finetti.studies.executors.base import Cohort
from finetti.studies.grid import combinations
from finetti.studies.kinds import CohortKind, StudyKind
from finetti.studies.parameters import ParameterError
from finetti.studies.sources import KindSource, installed_versions
from finetti.studies.spec import StudySpec
from finetti.studies.trial import Cell

NOWHERE = KindSource("")


@dataclass(frozen=True)
class WorkPlan:
    """What a study consists of: its cells, their shapes, and the trials of each.

    Args:
        digest: hash of all that the plan was made from.
        name: the study's title.
        trials: trials per cell.
        together: whether the trials of a cohort run in one go.
        cohort_size: the largest cohort.
        cells: the points of the grid, in its order.
        shapes: of each cell; trials of one shape may share a cohort.
        source: of the kind; a store does not keep it.
        only: of parameters and replicate, whether the trial belongs to the study; all do unless
            given, and a store does not keep it.
    """

    digest: bytes
    name: str
    trials: int
    together: bool
    cohort_size: int
    cells: tuple[Cell, ...]
    shapes: tuple[str, ...]
    source: KindSource = NOWHERE
    only: Callable[[Mapping[str, Any], int], bool] | None = None

    @cached_property
    def places(self) -> dict[str, tuple[int, int]]:
        """Trial id → (number of its cell, replicate), in the order of the grid."""
        return {
            cell.trial_id(replicate): (number, replicate)
            for number, cell in enumerate(self.cells)
            for replicate in range(self.trials)
            if self.only is None or self.only(cell.params, replicate)
        }

    def cohorts(
        self, todo: Iterable[str], workers: int = 1, most: Callable[[], int] | None = None
    ) -> Iterator[Cohort]:
        """The trials ``todo`` in cohorts of one shape, small enough that all workers have some.

        The first replicates of all cells come first: a run that is interrupted knows a little of
        every cell, not all of a few.

        ``most`` says how large the next one may be, where the trials run one by one.
        """
        by_shape: dict[str, list[tuple[int, int, str]]] = {}
        for trial_id in todo:
            number, replicate = self.places[trial_id]
            waiting = by_shape.setdefault(self.shapes[number], [])
            waiting.append((replicate, number, trial_id))
        largest = {shape: self.size(len(ids), workers) for shape, ids in by_shape.items()}
        queue = []
        for shape, ids in by_shape.items():
            ids.sort()
            queue.append((ids[0], shape, 0))
        heapq.heapify(queue)
        while queue:
            _, shape, start = queue[0]
            size = largest[shape]
            if most is not None and not self.together:
                size = min(size, most())
            ids, stop = by_shape[shape], start + size
            if stop < len(ids):
                heapq.heapreplace(queue, (ids[stop], shape, stop))
            else:
                heapq.heappop(queue)
            trials = (self.cells[n].trial(each, r) for r, n, each in ids[start:stop])
            yield Cohort(shape, tuple(trials))

    def size(self, count: int, workers: int) -> int:
        """The size of the cohorts of ``count`` trials of one shape."""
        # Trials that run one by one cost nothing to divide; a program is compiled by every worker.
        parts = workers if self.together or workers == 1 else 4 * workers
        return max(1, min(self.cohort_size, math.ceil(count / parts)))


def plan_digest(spec: StudySpec, source: KindSource, name: str) -> bytes | None:
    """What a plan can be found again by, without loading the kind; None if it cannot.

    A user's source is known by its fingerprint, the packages it imports by their versions. Our own
    kinds load instantly, a ``code_version`` says nothing about defaults, and other modules may
    change at any time, so these are always asked.
    """
    if not source.fingerprint or source.versioned or source.imports is None:
        return None
    versions = installed_versions(source.imports)
    if versions is None:
        return None
    python = list(sys.version_info[:3])
    # Names in scales are checked with the kind, too.
    scales = {scale: [[*preset.grid], [*preset.fixed]] for scale, preset in spec.scales.items()}
    content = [_content(spec, source, name), source.fingerprint, __version__, python]
    return digest(canonical_json([*content, versions, scales]))


def _content(spec: StudySpec, source: KindSource, name: str) -> list[Any]:
    # Not the paths of the snapshot: a study may move.
    own = [spec.values, spec.fixed, spec.trials, spec.seed, spec.seed_by, spec.cohort]
    return plain([source.reference, name, *own], "study")


def _check_scales(spec: StudySpec, kind: StudyKind, name: str) -> None:
    """Refuse names that the kind does not know in any scale, chosen or not."""
    for scale, preset in spec.scales.items():
        for part, names in (("grid", preset.grid), ("fixed", preset.fixed)):
            for parameter in names:
                try:
                    kind.check_name(parameter)
                except ParameterError as error:
                    path = f"scales.{scale}.{part}.{parameter}"
                    raise InputError(f"{name}: `{path}` {error}.") from error


def make_work_plan(spec: StudySpec, source: KindSource, kind: StudyKind, name: str) -> WorkPlan:
    """Resolve every cell; what the kind refuses is named with the path of its key."""
    _check_scales(spec, kind, name)
    cells: dict[str, tuple[Cell, str]] = {}
    for chosen in combinations(spec.values):
        params = plain({**spec.fixed, **chosen}, "study")
        try:
            # As other processes will know it: an enumeration that is an int is that int.
            resolved = json.loads(json.dumps(plain(kind.resolve(params), "study")))
            shape = canonical_json(plain(kind.cohort_key(resolved), "cohort_key"))
        except ParameterError as error:
            where = "grid" if error.parameter in spec.grid else "fixed"
            raise InputError(f"{name}: `{where}.{error.parameter}` {error}.") from error
        except FinettiError:
            raise
        except (Exception, SystemExit) as error:
            text = f"the kind refuses {canonical_json(params)}. {type(error).__name__}: {error}"
            raise InputError(f"{name}: {text}") from error
        code = source.reference, str(kind.version), source.fingerprint
        cell = Cell(*code, resolved, spec.seed, spec.seed_by)
        # Two points of the grid that the kind resolves to one are one.
        cells.setdefault(cell.content, (cell, shape))
    key = plan_digest(spec, source, name)
    if key is None:
        key = digest(canonical_json([_content(spec, source, name), list(cells)]))
    resolved, shapes = zip(*cells.values(), strict=True)
    together, size = isinstance(kind, CohortKind), spec.cohort or kind.cohort_size
    return WorkPlan(key, name, spec.trials, together, size, resolved, shapes, source)
