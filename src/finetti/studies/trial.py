"""A trial is known by the hash of all that it depends on; its randomness follows from the hash."""

from dataclasses import dataclass
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
        seed: a 63-bit integer that depends on the id only.
    """

    id: str
    params: dict[str, Any]
    seed: int


@dataclass(frozen=True)
class Cell:
    """One point of the grid: all that its trials share.

    ``content`` holds the kind, its version, the fingerprint of its source, the resolved parameters
    and the study's seed; nothing else may change a result, and all of it changes the id.
    """

    kind: str
    version: str
    fingerprint: str
    params: dict[str, Any]
    seed: int

    @cached_property
    def content(self) -> str:
        """The canonical JSON of the cell."""
        return canonical_json(
            {
                "kind": self.kind,
                "version": self.version,
                "fingerprint": self.fingerprint,
                "params": self.params,
                "seed": self.seed,
            }
        )

    def trial_id(self, replicate: int) -> str:
        """The id of one of the cell's trials; more trials per cell leave the first as they are.

        >>> cell = Cell("m:f", "1", "", {"n": 3}, seed=0)
        >>> cell.trial_id(0)[:8], cell.trial_id(1)[:8]
        ('87da1685', '8cd6b201')
        """
        return digest(f'{{"cell":{self.content},"replicate":{replicate}}}').hex()

    def trial(self, trial_id: str) -> Trial:
        """What the kind gets to see of the trial."""
        return Trial(trial_id, self.params, seed_of(trial_id))
