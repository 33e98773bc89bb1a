"""Brings the trials of several stores into one. Doing it twice changes nothing."""

import os
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from finetti.core.errors import InputError
from finetti.display import Card, Displayable
from finetti.studies.store.store_reader import StoreReader, open_store
from finetti.studies.store.trial_store import Store
from finetti.studies.trials import DONE

BATCH_TRIALS = 1000


@dataclass(frozen=True)
class Merged(Displayable):
    """What a merge did.

    Args:
        store: where the trials are now.
        added: trials that were not there.
        repaired: trials that had failed there and are done elsewhere.
        present: trials that were already there.
        different: of them, done in both with other metrics; the store keeps its own.
        damaged: rows of the sources that are not what was written, and were left out.
    """

    store: Path
    added: int
    repaired: int
    present: int
    different: int
    damaged: tuple[str, ...] = ()

    def __card__(self) -> Card:
        fields = (
            ("added", self.added),
            ("repaired", self.repaired),
            ("already there", self.present),
            ("done in both with other metrics", self.different),
            *((("damaged, left out", len(self.damaged)),) if self.damaged else ()),
        )
        notes = ("The store's own metrics are kept where both differ.",) if self.different else ()
        return Card(f"Merged into {self.store.name}", fields, notes=(*notes, *self.damaged))


def merge_stores(target: str | Path, sources: Iterable[str | Path], wait: bool = False) -> Merged:
    """Add the trials of ``sources`` to ``target``, which is made if need be.

    Finished rows stay as they are. The sources are only read, may be in use, and may be damaged:
    rows that are not what was written are left out and named.
    """
    paths = [Path(source) for source in sources]
    for path in paths:
        if os.path.realpath(path) == os.path.realpath(target):
            raise InputError(f"{path} cannot be merged into itself. Give other stores.")
        with open_store(path):
            pass  # all are looked at before anything is written
    counts = {"added": 0, "repaired": 0, "present": 0, "different": 0}
    damaged: list[str] = []
    with Store(target, wait=wait, checked=True) as store:
        for path in paths:
            with open_store(path, salvage=True) as reader:
                _merge(store, reader, counts)
                damaged += [f"{path}: {name}" for name in reader.damaged]
    return Merged(Path(target), **counts, damaged=tuple(damaged))


def _merge(store: Store, reader: StoreReader, counts: dict[str, int]) -> None:
    own = {row.outcome.trial_id: row for row in store.reader.rows()}
    news = []
    for row in reader.rows():
        known, theirs = own.get(row.outcome.trial_id), row.outcome
        if known is None:
            counts["added"] += 1
            news.append(row)
        elif known.outcome.state != DONE and theirs.state == DONE:
            counts["repaired"] += 1
            # Added to mine. The attempts before a copy was made are not counted twice.
            news.append(replace(row, attempts=max(1, row.attempts - known.attempts)))
        else:
            counts["present"] += 1
            both_done = known.outcome.state == theirs.state == DONE
            counts["different"] += both_done and known.outcome.metrics != theirs.metrics
    for start in range(0, len(news), BATCH_TRIALS):
        store.add(news[start : start + BATCH_TRIALS])
