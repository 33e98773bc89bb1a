"""What a certificate and an explanation say of a network's readers, measured on its weights."""

import math

import numpy as np
from numpy.typing import NDArray

from finetti.boolean.cls_proof import cls_error
from finetti.boolean.embeddings.base import ONE_BIT
from finetti.boolean.findings import NetworkEvidence, ReaderProof, Reading
from finetti.boolean.functions.base import BooleanFunction
from finetti.boolean.functions.symmetric import Symmetric
from finetti.boolean.gate_proof import read_errors
from finetti.boolean.network.weights import Network
from finetti.boolean.norms import head_capacities, norm_bounds
from finetti.boolean.simplification import simplify
from finetti.boolean.verification import comparable
from finetti.boolean.words import counted
from finetti.core.errors import UnsupportedError

Places = list[int]  # tokens: bits first, then readers


def read_places(network: Network, function: BooleanFunction) -> list[Places]:
    """What every read should read: the sources of a gate's group; at [CLS] all relevant bits, or
    the one that a head with a key of its own looks at."""
    if network.gates:
        reads = [read for block in network.blocks for read in block.reads]
        first = network.context_length
        return [[s.index + first * s.is_gate for s in read.sources] for read in reads]
    relevant, scalar = _reduced(function)
    if not relevant or not network.embedding.own_keys(scalar):
        return [relevant] * network.blocks[0].n_heads
    seen = network.tables.exponentials(slice(0, network.blocks[0].n_heads))[1][relevant]
    return [[relevant[int(which)]] for which in seen.argmax(axis=0)]


def _reduced(function: BooleanFunction) -> tuple[Places, bool]:
    """The relevant bits, and whether their number of ones is enough."""
    reduced = simplify(function)
    return list(reduced.indices), isinstance(reduced, Symmetric)


def _attention(network: Network, column: int, places: Places) -> tuple[float, float]:
    """The least attention of a read on what it should read, and the least lead of its scores."""
    if not places:
        return 1.0, 0.0
    zero, one = network.tables.exponentials(column)
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
    if network.gates:
        errors, about = (
            read_errors(network),
            [(g.text, g.level, len(g.sources)) for g in network.gates],
        )
    else:
        relevant, scalar = _reduced(function)
        error = cls_error(network, tuple(relevant), scalar)
        errors, about = np.full(len(places), error), [(str(function), 1, len(relevant))]
    scales = np.concatenate([np.abs(block.query).max(axis=(1, 2)) for block in network.blocks])
    readers = [read.reader for block in network.blocks for read in block.reads]
    proofs = []
    for which, (text, level, sparsity) in enumerate(about):
        own = [column for column, reader in enumerate(readers) if reader == which]
        sizes = [len(places[column]) for column in own]
        worst = int((errors[own] * sizes).argmax())
        proofs.append(
            ReaderProof(
                text=text,
                level=level,
                sparsity=sparsity,
                separation=embedding.separation(sizes[worst], True),
                tolerance=embedding.tolerance(sizes[worst], True),
                head_error=float(errors[own[worst]]),
                score_scale=float(scales[own].max()),
                score_gap=min(seen[column][1] for column in own),
                attention_mass=min(seen[column][0] for column in own),
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
    places, sums = read_places(network, function), network.tables.sums(bits[None])
    attention = network.tables.attention(bits)
    if network.gates:
        done = list(network.double.levels(sums))
        names = {f"g{k}": float(value) for k, value in enumerate(done[-1][1][0, :, ONE_BIT])}
        about = [(f"g{k}", gate.text) for k, gate in enumerate(network.gates)]
    else:
        features = network.tables.features(sums)[0]
        names, about = {"[CLS]": float(network.double.outputs(sums)[0])}, [("[CLS]", str(function))]
    found = []
    for number, (block, columns) in enumerate(zip(network.blocks, network.columns, strict=True)):
        here = []
        for read, column in zip(block.reads, range(columns.start, columns.stop), strict=True):
            if network.gates:
                read_here = done[number][0][
                    0, block.readers.index(read.reader), read.head : read.head + 1
                ]
            else:
                own = len(features) == block.n_heads
                read_here = features[read.head : read.head + 1] if own else features
            reader, text = about[read.reader]
            seen = (
                tuple(places[column]),
                attention[column],
                tuple(map(float, read_here)),
                names[reader],
            )
            here.append(Reading(reader, text, read.head, *seen))
        found.append(tuple(here))
    return tuple(found), names
