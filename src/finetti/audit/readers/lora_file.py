"""LoRA adapters in the layout of PEFT: thin factors and what `adapter_config.json` says of them."""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from finetti.audit.readers.checkpoint_files import MAX_CONFIG
from finetti.audit.readers.hub_cache import find_snapshot
from finetti.audit.readers.safetensors_file import read_safetensors
from finetti.audit.readers.stored_tensor import StoredTensor, config_number
from finetti.core.errors import InputError
from finetti.core.files import read_json

WEIGHTS, CONFIG, PICKLED = "adapter_model.safetensors", "adapter_config.json", "adapter_model.bin"
ROOT = "base_model.model."
# `default` is the name of an adapter in memory, which files leave out.
FACTOR = re.compile(r"(?P<module>.+)\.lora_(?P<side>[AB])(?:\.default)?\.weight")
# What makes another network than W₀ + s·BA: fields that must be empty, and kinds of a first step.
OTHER_FIELDS = ("use_dora", "lora_bias", "layer_replication", "alora_invocation_tokens")
OTHER_FIELDS = (*OTHER_FIELDS, "trainable_token_indices")
OTHER_BASES = ("pissa", "olora", "corda", "loftq", "lora_ga")


@dataclass(frozen=True)
class LowRankFactors:
    """Δ = scaling · BA of one module, A (rank, inputs) and B (outputs, rank)."""

    module: str
    scaling: float
    inner: StoredTensor
    outer: StoredTensor

    @property
    def shape(self) -> tuple[int, int]:
        """Return outputs and inputs of Δ."""
        return self.outer.shape[0], self.inner.shape[1]

    def read(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return A and scaling · B."""
        return self.inner.read(), self.scaling * self.outer.read()


@dataclass(frozen=True)
class LoraAdapter:
    """The factors of an adapter by module, and the parameters that it saves whole."""

    name: str
    factors: Mapping[str, LowRankFactors]
    whole: Mapping[str, StoredTensor]
    fan_in_fan_out: bool | None = None


def adapter_folder(source: Any) -> Path | None:
    """Return the folder of a path, or of a name in the hub cache, that holds an adapter and no
    network; None for everything else."""
    if not isinstance(source, str | Path):
        return None
    folder = path = Path(source)
    try:
        if path.name == WEIGHTS and not path.is_dir():
            folder = path.parent
        elif not path.is_dir():
            if path.exists() or path.suffix:
                return None
            folder = find_snapshot(str(source))
        network = (folder / "model.safetensors").exists() and path.name != WEIGHTS
        files = (WEIGHTS, CONFIG, PICKLED)
        return folder if not network and any((folder / each).exists() for each in files) else None
    except (OSError, ValueError, RuntimeError):  # told by whoever opens it
        return None


def read_adapter(folder: Path, name: str) -> LoraAdapter:
    """Return the adapter in a folder, believed only as far as config and shapes agree."""
    if not (folder / WEIGHTS).exists() and (folder / PICKLED).exists():
        raise InputError(
            f"The adapter {name} is a pickle, which can run code when loaded, and is never opened. "
            "Save it again with PEFT: save_pretrained(…, safe_serialization=True)."
        )
    if not (folder / CONFIG).exists():
        raise InputError(
            f"The adapter {name} has no {CONFIG} next to it, which says by how much its factors "
            "are scaled."
        )
    config = read_json(folder / CONFIG, MAX_CONFIG)
    _check_plain(name, config)
    sides: dict[str, dict[str, StoredTensor]] = {}
    whole = {}
    for key, tensor in read_safetensors(folder / WEIGHTS).items():
        found = FACTOR.fullmatch(key)
        if found is None:
            if "lora_" in key:
                raise _not_plain(name, f"the parameter {key[:120]}")
            whole[key.removeprefix(ROOT)] = tensor
            continue
        pair = sides.setdefault(found["module"].removeprefix(ROOT), {})
        if found["side"] in pair:
            raise InputError(f"The adapter {name} has {key} twice: audit one adapter at a time.")
        pair[found["side"]] = tensor
    if not sides:
        raise InputError(f"The adapter {name} holds no lora_A and lora_B: nothing to audit.")
    factors = {module: _factors(module, pair, config) for module, pair in sides.items()}
    turned = config.get("fan_in_fan_out")
    return LoraAdapter(name, factors, whole, turned if isinstance(turned, bool) else None)


def _check_plain(name: str, config: Mapping[str, Any]) -> None:
    """Refuse what is no step W₀ + s·BA from the base as it is stored."""
    if config.get("peft_type") != "LORA":
        raise _not_plain(name, f"peft_type = {str(config.get('peft_type'))[:40]}")
    for field in OTHER_FIELDS:
        if config.get(field):
            raise _not_plain(name, f"{field} = {str(config[field])[:40]}")
    start = str(config.get("init_lora_weights")).lower()
    if start.startswith(OTHER_BASES):  # which change the base itself
        raise _not_plain(name, f"init_lora_weights = {start[:40]}")


def _not_plain(name: str, what: str) -> InputError:
    return InputError(
        f"The adapter {name} has {what}; only plain LoRA is read, W₀ + s·BA. Merge it into its "
        "base and audit the result."
    )


def _factors(
    module: str, pair: Mapping[str, StoredTensor], config: Mapping[str, Any]
) -> LowRankFactors:
    if len(pair) < 2:
        only, missing = ("A", "B") if "A" in pair else ("B", "A")
        raise InputError(f"{module} has lora_{only} but no lora_{missing}; expected both.")
    shapes = pair["A"].shape, pair["B"].shape
    default = config_number(config, "r")
    if default is None:
        raise InputError(f"{CONFIG} does not say the rank r.")
    rank = _by_module(module, config, "rank_pattern", default)
    if [len(each) for each in shapes] != [2, 2] or not shapes[0][0] == shapes[1][1] == rank:
        raise InputError(
            f"The factors of {module} have shapes {shapes[0]} and {shapes[1]}; expected "
            f"({rank}, inputs) and (outputs, {rank}), r being {rank} in {CONFIG}."
        )
    alpha = _by_module(module, config, "alpha_pattern", config.get("lora_alpha"))
    number = isinstance(alpha, int | float) and not isinstance(alpha, bool)
    if not number or not math.isfinite(alpha):
        raise InputError(f"{CONFIG} has lora_alpha = {str(alpha)[:40]}; expected a number.")
    scaling = alpha / (math.sqrt(rank) if config.get("use_rslora") else rank)
    return LowRankFactors(module, scaling, pair["A"], pair["B"])


def _by_module(module: str, config: Mapping[str, Any], field: str, default: Any) -> Any:
    """A number that some modules have of their own; only plain names are read, no patterns."""
    table = config.get(field) or {}
    if not isinstance(table, dict):
        raise InputError(f"{field} in {CONFIG} is not a table.")
    for key, value in table.items():
        if not re.fullmatch(r"[\w.-]+", key):
            raise InputError(
                f"{CONFIG} has the pattern {key[:40]!r} in {field}; only names are read."
            )
        if f".{module}".endswith(f".{key}"):
            return config_number({field: value}, field) if field == "rank_pattern" else value
    return default
