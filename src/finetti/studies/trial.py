"""A trial is known by the hash of all that it depends on; its randomness follows from the hash."""

from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

from finetti.core.keys import seed_of
from finetti.studies.canonical import canonical_json, digest


@dataclass(frozen=True)
class Trial:
    """What a kind gets to see of one seeded run.

    Args:
        id: hexadecimal SHA-256 of the trial's content.
        params: the whole configuration, defaults included.
        seed: a 63-bit integer that depends on the id only, or on study seed and replicate.
    """

    id: str
    params: dict[str, Any]
    seed: int


@dataclass(frozen=True)
class Cell:
    """One point of the grid: all that its trials share.

    ``content`` holds the kind, its version, the fingerprint of its source, the resolved parameters
    and the study's seed; nothing else may change a result, and all of it changes the id. Trials
    seeded by their replicate share their random numbers with those of every other cell.
    """

    kind: str
    version: str
    fingerprint: str
    params: dict[str, Any]
    seed: int
    seed_by: str = "trial"

    @cached_property
    def content(self) -> str:
        """The canonical JSON of the cell; the usual way to seed goes without saying."""
        names = [each.name for each in fields(self)]
        usual = names[:-1] if self.seed_by == "trial" else names
        return canonical_json({name: getattr(self, name) for name in usual})

    @property
    def code(self) -> str:
        """The version of the code: that of the kind, and the user's or the hash of the source.

        >>> Cell("m:f", "1", "2f0c", {}, 0).code, Cell("m:f", "1", "", {}, 0).code
        ('1+2f0c', '1')
        """
        return "+".join(filter(None, (self.version, self.fingerprint)))

    def trial_id(self, replicate: int) -> str:
        """The id of one of the cell's trials; more trials per cell leave the first as they are.

        >>> cell = Cell("m:f", "1", "", {"n": 3}, seed=0)
        >>> cell.trial_id(0)[:8], cell.trial_id(1)[:8]
        ('87da1685', '8cd6b201')
        """
        return digest(f'{{"cell":{self.content},"replicate":{replicate}}}').hex()

    def trial(self, trial_id: str, replicate: int) -> Trial:
        """What the kind gets to see of the trial."""
        by_trial = self.seed_by == "trial"
        seed = seed_of(trial_id) if by_trial else seed_of(self.seed, replicate)
        return Trial(trial_id, self.params, seed)
