"""How genomes arise: at random, by refinement, by something new, by simplification, by crossover."""

from __future__ import annotations

from dataclasses import asdict, replace
from random import Random
from typing import Any

from .genome import CHOICES, RANGES, Genome, drawn, nudged

GROUPS: tuple[tuple[str, ...], ...] = (
    ("initial", "initial_count"),
    ("walk", "temperature", "neighborhood", "patience", "restart"),
    ("population", "size", "mutation", "tournament", "ageing", "differential"),
    ("surrogate", "prior", "scope", "neighbors", "ridge", "trees", "leaf", "length", "growth"),
    ("acquisition", "kappa", "margin"),
    ("schedule", "explore"),
)
"""Genes that belong together: crossover passes a group on whole."""

_PLAIN: dict[str, Any] = {
    "schedule": "constant",
    "neighborhood": "hamming",
    "restart": "random",
    "acquisition": "mean",
    "initial": "random",
    "prior": "none",
}
_FAMILIES: tuple[tuple[str, ...], ...] = (
    ("surrogate",),
    ("walk",),
    ("population", "surrogate"),
    ("walk", "surrogate"),
    ("population",),
    ("walk", "population", "surrogate"),
)


def random_genome(rng: Random, turn: int) -> Genome:
    """A genome drawn at random; `turn` goes through the combinations of families, so that first programs differ in kind."""
    genes: dict[str, Any] = {name: drawn(name, rng) for name in (*CHOICES, *RANGES)}
    present = _FAMILIES[turn % len(_FAMILIES)]
    for family in ("walk", "population", "surrogate"):
        if family not in present:
            genes[family] = "none"
        while family in present and genes[family] == "none":
            genes[family] = drawn(family, rng)
    return Genome(**genes).repaired()


def refined(parent: Genome, rng: Random) -> Genome:
    """The same program with one to three of its numbers changed."""
    numbers = [gene for gene in RANGES if parent.is_used(gene)]
    chosen = rng.sample(numbers, min(len(numbers), rng.choice((1, 2, 3))))
    changes: dict[str, Any] = {gene: nudged(gene, getattr(parent, gene), rng) for gene in chosen}
    return replace(parent, **changes)


def novel(parent: Genome, rng: Random) -> Genome:
    """Another structure: one or two components exchanged, their numbers drawn anew; never the parent's own structure."""
    while True:
        genes = asdict(parent)
        for group in rng.sample(GROUPS[:5], rng.choice((1, 2))):
            for gene in group:
                genes[gene] = drawn(gene, rng)
            if group[0] == "surrogate" and rng.random() < 0.25:  # no draw leaves it out: it is worth having
                genes["surrogate"] = "none"
        child = Genome(**genes).repaired()
        if _structure(child) != _structure(parent):
            return child


def renewed(parent: Genome, what: str, rng: Random) -> Genome:
    """The program with one group of genes, named by its first, drawn anew; a surrogate is there afterwards."""
    group = next(genes for genes in GROUPS if genes[0] == what)
    for _ in range(20):
        genes: dict[str, Any] = {gene: drawn(gene, rng) for gene in group}
        child = replace(parent, **genes).repaired()
        if child.key() != parent.key():
            return child
    return refined(parent, rng)


def simplified(parent: Genome, rng: Random) -> Genome:
    """The program with a component less; if it has only one, with a plainer choice somewhere; if it is plain, refined."""
    present = parent.components()
    if len(present) > 1:
        without: dict[str, Any] = {rng.choice(present): "none"}
        return replace(parent, **without).repaired()
    fancy = [gene for gene, plain in _PLAIN.items() if parent.is_used(gene) and getattr(parent, gene) != plain]
    if not fancy:
        return refined(parent, rng)
    gene = rng.choice(fancy)
    return replace(parent, **{gene: _PLAIN[gene]})


def crossed(one: Genome, other: Genome, rng: Random) -> Genome:
    """Each group of genes from one parent or the other, some from both; twins are refined instead."""
    if one.key() == other.key():
        return refined(one, rng)
    first, second = asdict(one), asdict(other)
    for _ in range(20):
        genes: dict[str, Any] = {}
        for group in GROUPS:
            donor = first if rng.random() < 0.5 else second
            genes |= {gene: donor[gene] for gene in group}
        child = Genome(**genes).repaired()
        if child.key() not in (one.key(), other.key()):
            return child
    return refined(one, rng)


def _structure(genome: Genome) -> tuple[Any, ...]:
    return tuple(getattr(genome, gene) for gene in CHOICES if genome.is_used(gene))
