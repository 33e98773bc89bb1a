"""What a certificate and an explanation say of a network's readers, measured on its weights."""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from finetti.boolean.findings import NetworkEvidence, ReaderProof, Reading
from finetti.boolean.language.families import Symmetric
from finetti.boolean.language.rule import BooleanFunction
from finetti.boolean.network.compiled_network import Network
from finetti.boolean.verify.cls_proof import read_errors
from finetti.boolean.verify.norm_bounds import head_capacities, norm_bounds
from finetti.boolean.verify.verification import comparable
from finetti.boolean.words import counted
from finetti.core.errors import UnsupportedError
from finetti.core.numerics.extremes import smallest_of

Places = list[int]  # tokens: bits first, then readers


class _Reader(NamedTuple):
    """[CLS] or a gate."""

    name: str
    text: str  # what it computes
    level: int  # its block
    sparsity: int  # how many tokens it reads


def _readers(network: Network, function: BooleanFunction) -> list[_Reader]:
    if not network.gates:
        return [_Reader("[CLS]", str(function), 1, comparable(network, function).sparsity)]
    return [
        _Reader(f"g{number}", gate.text, gate.level, len(gate.sources))
        for number, gate in enumerate(network.gates)
    ]


def read_places(network: Network, function: BooleanFunction) -> list[Places]:
    """What every read should read: the sources of a gate's group; at [CLS] all relevant bits, or
    the one that a head with a key of its own looks at."""
    reads, first = network.reads, network.context_length
    if network.gates:
        return [[s.index + first * s.is_gate for s in read.sources] for read in reads]
    rule = comparable(network, function)
    relevant = list(rule.indices)
    if not relevant or not network.embedding.own_keys(isinstance(rule, Symmetric)):
        return [relevant] * len(reads)
    seen = network.tables.one[relevant, : len(reads)]
    return [[relevant[int(which)]] for which in seen.argmax(axis=0)]


def _attention(network: Network, column: int, places: Places) -> tuple[float, float]:
    """The least attention of a read on what it should read, and the least lead of its scores."""
    if not places:
        return 1.0, 0.0
    zero, one = network.tables.zero[:, column], network.tables.one[:, column]
    beside = network.tables.readers[:, column]
    if network.gates:  # tokens that are always there, as those of bits
        zero, one, beside = np.append(zero, beside), np.append(one, beside), beside[:0]
    meant, least, others = network.embedding.reading(zero, one, beside, places)
    top = float(others.max(initial=0.0))
    lead = math.log(least / top) if top > 0 and least > 0 else math.inf
    return (meant / (meant + float(others.sum())) if meant > 0 else 0.0), lead


def reader_proofs(network: Network, function: BooleanFunction) -> tuple[ReaderProof, ...]:
    """One proof per reader, from what is measured of its reads."""
    embedding, places = network.embedding, read_places(network, function)
    seen = [_attention(network, column, own) for column, own in enumerate(places)]
    errors = read_errors(network, comparable(network, function))
    scales = np.concatenate([np.abs(block.query).max(axis=(1, 2)) for block in network.blocks])
    proofs = []
    for which, reader in enumerate(_readers(network, function)):
        own = [column for column, read in enumerate(network.reads) if read.reader == which]
        sizes = [len(places[column]) for column in own]
        worst = int((errors[own] * sizes).argmax())
        proofs.append(
            ReaderProof(
                text=reader.text,
                level=reader.level,
                sparsity=reader.sparsity,
                separation=embedding.separation(sizes[worst], True),
                tolerance=embedding.tolerance(sizes[worst], True),
                head_error=float(errors[own[worst]]),
                score_scale=float(scales[own].max()),
                score_gap=smallest_of(seen[column][1] for column in own),
                attention_mass=smallest_of(seen[column][0] for column in own),
            )
        )
    return tuple(proofs)


def network_evidence(network: Network, function: BooleanFunction, margin: float) -> NetworkEvidence:
    """What every reader reads, over all inputs; the norms of heads and lookups; the capacity of
    every block (Corollary 4.4, or Lemma A.12 for several heads)."""
    embedding, rule = network.embedding, comparable(network, function)
    if network.gates:
        route = f"Lemma {embedding.lemma} for the heads of every gate, lookups of Lemma B.8"
        readers = counted(len(network.gates), "gate token")
    else:
        sparsity, scalar = rule.sparsity, isinstance(rule, Symmetric)
        n_features = network.tables.output.shape[2]
        if n_features != (1 if scalar else sparsity):
            raise UnsupportedError(
                f"A network with {counted(n_features, 'feature')} was not built for a rule of "
                f"{counted(sparsity, 'bit')}, so no lemma certifies it. `verify` compares any "
                "network with any rule."
            )
        form, kind = ("B.5", "symmetric") if scalar else ("B.6", "general")
        route = f"Lemmas {embedding.lemma} and {form} ({kind} rule), lookup of Lemma B.8"
        readers = "[CLS]"
    sizes = [len(places) for places in read_places(network, function)]
    tolerances = [embedding.tolerance(max(sizes[own]), True) for own in network.columns]
    return NetworkEvidence(
        route,
        readers,
        reader_proofs(network, function),
        norm_bounds(network, rule, tolerances, margin),
        head_capacities(network, tolerances),
    )


def network_readings(
    network: Network, function: BooleanFunction, bits: NDArray[np.uint8]
) -> tuple[tuple[tuple[Reading, ...], ...], dict[str, float]]:
    """What is read on one input, block by block; and the readers with their values, the last of
    which is the network's."""
    places, attention = read_places(network, function), network.tables.attention(bits)
    done = list(network.double.levels(network.tables.sums(bits[None])))
    readers, values = _readers(network, function), done[-1][1][0].tolist()
    found, column = [], 0
    for block, (features, _) in zip(network.blocks, done, strict=True):
        here = []
        for read in block.reads:
            reader, seen = readers[read.reader], features[0, block.readers.index(read.reader)]
            if len(seen) == block.n_heads:  # a feature of its own for every head
                seen = seen[read.head : read.head + 1]
            what = tuple(places[column]), attention[column], tuple(seen.tolist())
            value = values[read.reader]
            here.append(Reading(reader.name, reader.text, read.head, *what, value))
            column += 1
        found.append(tuple(here))
    return tuple(found), dict(zip([reader.name for reader in readers], values, strict=True))
