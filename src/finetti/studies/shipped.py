"""Studies that ship with the package, by name: files beside the kinds of their rooms."""

from pathlib import Path

from finetti.core.errors import InputError

ROOT = Path(__file__).parents[1]
SUFFIX = ".study.toml"


def shipped_studies() -> dict[str, Path]:
    """Name → file."""
    return {path.name.removesuffix(SUFFIX): path for path in sorted(ROOT.glob(f"*/*{SUFFIX}"))}


def is_shipped(place: str | Path) -> bool:
    """Whether ``place`` is the name of a shipped study, and no file of the user's own."""
    place = Path(place)
    return place.name == str(place) and not place.exists() and place.name in shipped_studies()


def spec_file(place: str | Path) -> Path:
    """The file of the study in ``place``: that path, or the shipped study of that name."""
    place = Path(place)
    if is_shipped(place):
        return shipped_studies()[place.name]
    if not place.suffix and not place.exists():
        known = ", ".join(shipped_studies())
        raise InputError(
            f"Unknown study {str(place)!r}. Give a study.toml, or the name of a bundled "
            f"study: {known}."
        )
    return place
