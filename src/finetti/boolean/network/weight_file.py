"""Networks as files: safetensors with the rule in the metadata, or a PyTorch module.

Both have the names of `Network.weights`. Positions are written as float64 (T, d), as the int8 signs
of a random basis (T, d − 3), or not at all where they are unit vectors. A file is loaded with every
shape and every number checked; the certificate is computed again from the weights.
"""

import importlib.util
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from finetti.boolean.embeddings import EMBEDDINGS, find_embedding
from finetti.boolean.embeddings import position_vectors as kinds
from finetti.boolean.embeddings.position_vectors import RESERVED, BitPositions
from finetti.boolean.embeddings.token_embedding import Embedding, HeadMatrices
from finetti.boolean.embeddings.weight_range import MAX_BYTES, check_weight_range
from finetti.boolean.language.expression import ExpressionRule
from finetti.boolean.language.families import Symmetric, TruthTable
from finetti.boolean.language.gate_graph import split
from finetti.boolean.language.parser import parse
from finetti.boolean.language.rule import BooleanFunction
from finetti.boolean.language.simplify import simplify
from finetti.boolean.network.cls_network import ClsNetwork
from finetti.boolean.network.compiled_network import Network
from finetti.boolean.network.gate_heads import make_blocks, make_keys
from finetti.boolean.network.gate_network import GateNetwork, level_reads
from finetti.boolean.network.lookup import LOOKUP_NAMES, Lookup
from finetti.core.errors import InputError, bad_argument
from finetti.core.files import check_writable, file_size, write_file
from finetti.display.formatting import format_bytes, plural, short_text

FORMAT = "finetti-boolean-1"
METADATA = ("function", "context_length", "settings")
Tensors = dict[str, NDArray[Any]]


def describe_function(function: BooleanFunction) -> dict[str, Any]:
    """A function as plain data."""
    if isinstance(function, ExpressionRule):
        return {"rule": str(function)}
    indices = list(function.indices)
    if (profile := function.profile()) is not None:
        return {"indices": indices, "profile": profile.tolist()}
    return {"indices": indices, "values": function.table().tolist()}


def read_function(described: Any) -> BooleanFunction:
    """The function that `describe_function` described."""
    if not isinstance(described, dict):
        raise InputError(f"a function is described by names and values, not by {described!r}")
    if not isinstance(described.get("rule", ""), str):
        raise InputError(f"a rule is text, not {described['rule']!r}")
    if "rule" in described:
        return parse(described["rule"])
    if "profile" in described:
        return Symmetric(described["indices"], described["profile"])
    return TruthTable(described["indices"], described["values"])


def save(
    path: str | Path, network: Network, function: BooleanFunction, settings: dict[str, Any]
) -> Path:
    """Write a network to ``path``; see `read_network`."""
    import safetensors.numpy

    size = 8 * (network.n_parameters - network.context_length * network.width)  # but positions
    if size > MAX_BYTES:
        raise InputError(
            f"The matrices of this network take {format_bytes(size)}, and files end at "
            f'{format_bytes(MAX_BYTES)}. Use basis="random", embedding="trained", or fewer gates.'
        )
    metadata = {
        "format": FORMAT,
        "function": json.dumps(describe_function(function)),
        "context_length": str(network.context_length),
        "settings": json.dumps(settings),
    }
    tensors, positions = network.matrices(), network.positions.stored()
    if positions is not None:
        if positions.dtype == np.float64:  # gates and features have coordinates, too
            beside = network.width - positions.shape[1]
            positions = np.pad(positions, ((0, 0), (0, beside)))
        tensors["embedding.positions"] = positions
    tensors = {name: np.ascontiguousarray(each) for name, each in tensors.items()}
    return write_file(safetensors.numpy.save(tensors, metadata), path)


def check_torch_place(path: str | Path) -> None:
    """Refuse a place, or an installation, where `save_torch` would fail."""
    path = Path(path)
    if path.suffix != ".pt":
        advice = "The module that reads it is written beside it, with the suffix .py."
        raise bad_argument("path", "save_torch", "a name that ends in .pt", path.name, advice)
    if importlib.util.find_spec("torch") is None:
        raise InputError(
            "A PyTorch module cannot be written without PyTorch, which is not installed. Install "
            "it (pip install 'finetti[torch]'), or write safetensors, which need no PyTorch."
        )
    for each in (path, path.with_suffix(".py")):
        check_writable(each)


def save_torch(path: str | Path, weights: Tensors, rule: str) -> tuple[Path, Path]:
    """Write a state dict to ``path`` and beside it the module that computes it (`rule_in_torch`,
    which imports PyTorch only)."""
    check_torch_place(path)
    import torch

    module = Path(__file__).with_name("rule_in_torch.py").read_text(encoding="utf-8")
    module = module.replace("A compiled Boolean rule as", f"{short_text(rule, 40)} as", 1)
    stored = io.BytesIO()
    torch.save({name: torch.tensor(each) for name, each in weights.items()}, stored)
    beside = Path(path).with_suffix(".py")
    return (
        write_file(stored.getvalue(), path),
        write_file(module.encode(), beside),
    )


def read_network(
    path: str | Path, max_bytes: int
) -> tuple[ClsNetwork | GateNetwork, BooleanFunction, dict[str, Any]]:
    """The network in a file, its rule, and how it was made."""
    path = Path(path)
    tensors, metadata = _read(path, max_bytes)
    missing = [name for name in METADATA if name not in metadata]
    if metadata.get("format") != FORMAT or missing:
        what = f"lacks {', '.join(missing)}" if missing else f"is not of the format {FORMAT}"
        raise InputError(
            f"The file {path.name!r} {what}. Write one with `Compiled.save` or "
            "`finetti compile --out`."
        )
    try:
        length = int(metadata["context_length"])
        function = read_function(json.loads(metadata["function"]))
        settings = _settings(json.loads(metadata["settings"]))
        top = max(function.indices, default=-1)
        if length < 1 or top >= length:
            bits = plural(length, "bit")
            raise InputError(f"its rule uses x{max(top, 0)}, and its context has {bits}")
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
        # A damaged rule, too, is a ValueError.
        said = str(error).rstrip(".")
        raise InputError(f"The metadata of {path.name!r} cannot be read: {said}.") from error
    file = _WeightFile(path, tensors, length, find_embedding(settings["embedding"]))
    network = file.gate_network(function) if file.has_gates else file.cls_network(function)
    return network, function, settings


def _read(path: Path, max_bytes: int) -> tuple[Tensors, dict[str, str]]:
    from safetensors import SafetensorError, safe_open

    size = file_size(path)
    if size > max_bytes:
        raise InputError(
            f"The file {path.name!r} has {size} bytes; at most {max_bytes} are read. Load larger "
            "ones in Python with `max_bytes`."
        )
    try:
        with safe_open(path, framework="numpy") as file:
            tensors = {name: file.get_tensor(name) for name in list(file.keys())}
            metadata = file.metadata() or {}
    # Of numbers that NumPy does not have come the errors of types and attributes.
    except (OSError, TypeError, AttributeError, SafetensorError) as error:
        said = f"The file {path.name!r} cannot be read as safetensors: {error}."
        raise InputError(said) from error
    for name, array in tensors.items():
        if array.dtype.kind not in "fiub":
            raise InputError(f"{name[:80]!r} in {path.name!r} holds no real numbers.")
    return tensors, metadata


def _settings(found: Any) -> dict[str, Any]:
    """How a network was made: its embedding, and a margin of at least 1."""
    if not isinstance(found, dict):
        raise InputError(f"settings are names and values, not {found!r}")
    if found.get("embedding") not in EMBEDDINGS:
        raise InputError(f"its embedding is none of {', '.join(EMBEDDINGS)}")
    margin = found.get("margin", 1.0)
    if isinstance(margin, bool) or not isinstance(margin, int | float) or not 1 <= margin < np.inf:
        raise InputError(f"the margin is a finite number of at least 1, not {margin!r}")
    return found


class _WeightFile:
    """The tensors of a file, which fit together or are refused by name."""

    def __init__(self, path: Path, tensors: Tensors, length: int, embedding: Embedding):
        self.path, self.length, self.embedding = path, length, embedding
        self.stored = tensors.pop("embedding.positions", None)
        self.tensors = {name: each.astype(np.float64) for name, each in tensors.items()}
        for name, each in self.tensors.items():
            check_weight_range(**{name.rpartition(".")[2]: each})
        self.width = self.tensor("embedding.tokens", 2).shape[1]
        self.check_shape("embedding.tokens", (2, self.width))

    def tensor(self, name: str, ndim: int) -> NDArray[np.float64]:
        """The tensor of this name, with this number of dimensions."""
        if name not in self.tensors:
            raise InputError(f"The file {self.path.name!r} lacks {name}.")
        found = self.tensors[name]
        if found.ndim != ndim:
            raise self.misfit(name, f"has shape {found.shape}, and {ndim} dimensions are needed")
        return found

    def misfit(self, name: str, problem: str) -> InputError:
        """A tensor that does not fit together with others, before it is multiplied."""
        return InputError(f"The file {self.path.name!r} does not fit together: {name} {problem}.")

    def check_shape(self, name: str, needed: tuple[int, ...]) -> None:
        """Refuse a tensor of another shape."""
        shape = self.tensor(name, len(needed)).shape
        if shape != needed:
            raise self.misfit(name, f"has shape {shape}, and {needed} is needed")

    @property
    def has_gates(self) -> bool:
        """Whether the lookup of the first block writes into tokens."""
        return self.tensors.get("blocks.0.outer", np.zeros(0)).ndim == 2

    def positions(self, width: int) -> BitPositions:
        """Vectors on the first ``width`` coordinates of a token, in one of the three forms."""
        name, stored = "embedding.positions", self.stored
        if stored is None:
            if width < RESERVED + self.length:
                needed = f"is not there, and {self.length} unit vectors need more than {width}"
                raise self.misfit(name, f"{needed} dimensions")
            return kinds.StandardPositions(self.length, width)
        signs = stored.dtype == np.int8
        needed = (self.length, width - RESERVED if signs else self.width)
        if stored.shape != needed:
            raise self.misfit(name, f"has shape {stored.shape}, and {needed} is needed")
        if not signs:
            whole = stored.astype(np.float64)
            check_weight_range(positions=whole)
            if whole[:, width:].any():
                raise self.misfit(name, "has numbers beside the coordinates of positions")
            return kinds.DensePositions(whole[:, :width])
        if not (np.abs(stored) == 1).all():
            raise self.misfit(name, "has other signs than 1 and -1")
        return kinds.SignPositions.from_signs(stored)

    def cls_network(self, function: BooleanFunction) -> ClsNetwork:
        """A rule at [CLS]."""
        block = {name: f"blocks.0.{name}" for name in (*HeadMatrices._fields, *LOOKUP_NAMES)}
        heads = HeadMatrices(*(self.tensor(block[name], 3) for name in HeadMatrices._fields))
        n_heads, key_size = max(1, len(heads.query)), heads.query.shape[2]
        values, features = heads.output.shape[1:]
        n_bumps = self.tensor(block["inner_bias"], 1).size
        n_units = self.tensor(block["outer"], 1).size
        needed: dict[str, tuple[int, ...]] = {
            "embedding.readers": (1, self.width),
            block["query"]: (n_heads, self.width, key_size),
            block["key"]: (n_heads, self.width, key_size),
            block["value"]: (n_heads, self.width, values),
            block["output"]: (n_heads, values, features),
            block["inner"]: (features, n_bumps),
        }
        two_layers = block["middle"] in self.tensors
        if two_layers:
            needed[block["middle"]] = (n_bumps, n_units)
            needed[block["middle_bias"]] = (n_units,)
        else:
            needed[block["outer"]] = (n_bumps,)
        for name, shape in needed.items():
            self.check_shape(name, shape)
        arrays: dict[str, Any] = {name: self.tensors.get(block[name]) for name in LOOKUP_NAMES}
        rule, positions = simplify(function), self.positions(self.width)
        scalar = isinstance(rule, Symmetric)
        geometry = self.embedding.geometry(positions, rule.indices, scalar)
        tokens, cls = self.tensors["embedding.tokens"], self.tensors["embedding.readers"][0]
        lookup = Lookup(**arrays)
        return ClsNetwork(self.embedding, rule, positions, geometry, heads, lookup, tokens, cls)

    def gate_network(self, function: BooleanFunction) -> GateNetwork:
        """The rule gives the structure, the file the numbers; other numbers are refused."""
        if not isinstance(function, ExpressionRule):
            raise InputError(f"The file {self.path.name!r} has gates and no rule that made them.")
        if self.embedding.no_gates:
            raise InputError(
                f"The file {self.path.name!r} has gates, and a bag of vectors has none."
            )
        gates = split(function)
        n_features = sum(1 + max(read.head for read in reads) for reads in level_reads(gates))
        basis = self.width - len(gates) - n_features
        if basis < RESERVED:
            raise self.misfit("embedding.tokens", f"has no room for {plural(len(gates), 'gate')}")
        positions = self.positions(basis)
        built = make_blocks(gates, make_keys(gates, positions), 1.0)
        network = GateNetwork(self.embedding, function, positions, gates, built)
        for name, wanted in network.matrices().items():
            self.check_shape(name, wanted.shape)
        network = network.with_matrices(self.tensors)
        for name, wanted in network.matrices().items():
            if not np.array_equal(wanted, self.tensors[name]):
                raise self.misfit(name, "has numbers where a network of gates has none")
        return network
