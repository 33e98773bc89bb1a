"""LoRA adapters in the layout of PEFT: thin factors and what `adapter_config.json` says of them."""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from finetti.audit.layouts.tensor_mapping import config_number
from finetti.audit.readers.hub_cache import find_snapshot
from finetti.audit.readers.safetensors_file import read_safetensors
from finetti.audit.readers.stored_tensor import StoredTensor
from finetti.core.errors import InputError
from finetti.core.files import MEGABYTE, read_json

WEIGHTS, CONFIG = "adapter_model.safetensors", "adapter_config.json"
MAX_CONFIG = 4 * MEGABYTE
ROOT = "base_model.model."
# `default` is the name of an adapter in memory, which files leave out.
FACTOR = re.compile(r"(?P<module>.+)\.lora_(?P<side>[AB])(?:\.default)?\.weight")
# What changes the network in another way than W₀ + s·BA, by the name of its field.
OTHER_FIELDS = {
    "use_dora": "DoRA, which rescales the columns of the sum",
    "lora_bias": "LoRA with biases of its own",
    "layer_replication": "LoRA on repeated layers",
    "alora_invocation_tokens": "activated LoRA, which is there for some tokens only",
    "trainable_token_indices": "LoRA with trained tokens",
}
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
        """Outputs and inputs of Δ."""
        return self.outer.shape[0], self.inner.shape[1]

    def read(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """A and scaling · B."""
        return self.inner.read(), self.scaling * self.outer.read()


@dataclass(frozen=True)
class LoraAdapter:
    """The factors of an adapter by module, and the parameters that it saves whole."""

    name: str
    factors: Mapping[str, LowRankFactors]
    whole: Mapping[str, StoredTensor]
    fan_in_fan_out: bool | None = None


def is_adapter(source: Any) -> bool:
    """Whether a path, or a name in the hub cache, is that of an adapter and not of a network."""
    folder = _folder(source)
    if folder is None:
        return False
    names = (WEIGHTS, CONFIG, "adapter_model.bin")
    own = not (folder / "model.safetensors").exists() or Path(source).name == WEIGHTS
    return own and any((folder / name).exists() for name in names)


def _folder(source: Any) -> Path | None:
    if not isinstance(source, str | Path):
        return None
    path = Path(source)
    try:
        if path.is_dir():
            return path
        if path.name == WEIGHTS:
            return path.parent
        return None if path.exists() or path.suffix else find_snapshot(str(source))
    except (OSError, ValueError, RuntimeError):  # said by whoever opens it
        return None


def read_adapter(source: str | Path) -> LoraAdapter:
    """The adapter in a folder (or a hub name), believed only as far as config and shapes agree."""
    folder = _folder(source) or Path(source)
    name = str(source)
    if not (folder / WEIGHTS).exists() and (folder / "adapter_model.bin").exists():
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
    _refuse_others(name, config)
    sides: dict[str, dict[str, StoredTensor]] = {}
    whole = {}
    for key, tensor in read_safetensors(folder / WEIGHTS).items():
        found = FACTOR.fullmatch(key)
        if found is None:
            _refuse_odd(key)
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


def _refuse_others(name: str, config: Mapping[str, Any]) -> None:
    kind = config.get("peft_type")
    if kind != "LORA":
        raise InputError(
            f"The adapter {name} is of the kind {str(kind)[:40]}; only LORA is supported. Merge it "
            "into its base and audit the result."
        )
    for field, what in OTHER_FIELDS.items():
        if config.get(field):
            raise InputError(
                f"The adapter {name} is {what} ({field}), and is not read. Merge it into its base "
                "and audit the result."
            )
    start = str(config.get("init_lora_weights")).lower()
    if start.startswith(OTHER_BASES):
        raise InputError(
            f"The adapter {name} began with init_lora_weights = {start[:40]}, which changes the "
            "base itself: its factors are not a step from the original. Merge it, or convert it to "
            "plain LoRA with PEFT."
        )


def _refuse_odd(key: str) -> None:
    what = {
        "lora_magnitude_vector": "a DoRA magnitude",
        "lora_embedding": "LoRA of an embedding",
        "lora_B.bias": "a bias of a LoRA factor",
        "lora_": "a factor of a LoRA that is not called default",
    }
    for part, said in what.items():
        if part in key:
            raise InputError(
                f"{key[:120]} is {said}, which is not read. Merge the adapter into its base and "
                "audit the result."
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
