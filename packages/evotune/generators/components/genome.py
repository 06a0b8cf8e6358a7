"""The genome of a synthesized program: which components it combines, and their numbers.

A genome travels inside the program it describes, as one comment line, so that the next prompt, which quotes its
parents' code, carries their genomes back to the generator. Everything else in a prompt is for the reader.
"""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass, fields, replace
from random import Random
from typing import Any

MARK = "# genome: "

CHOICES: dict[str, tuple[Any, ...]] = {
    "initial": ("random", "spread", "lattice", "centre", "usual"),
    "walk": ("none", "better", "annealing", "threshold", "always"),
    "neighborhood": ("hamming", "two", "adjacent"),
    "restart": ("random", "elite"),
    "population": ("none", "uniform", "onepoint", "differential"),
    "ageing": (False, True),
    "surrogate": ("none", "nearest", "ridge", "forest", "gaussian"),
    "prior": ("none", "usual"),
    "scope": ("pool", "space"),
    "acquisition": ("mean", "bound", "improvement"),
    "schedule": ("constant", "linear", "cosine", "exponential"),
}
"""Structural genes and the values they may take."""

WEIGHTS: dict[str, tuple[float, ...]] = {
    "initial": (1, 2, 2, 1, 2),
    "prior": (1, 2),
    "surrogate": (0, 1, 4, 1, 4),
    "scope": (1, 3),
    "acquisition": (1, 1, 4),
}
"""How often the values of a gene are drawn, where not alike.

What their designer knows of components: on the bundled gemm and convolution recordings (12 runs, P in the mean), expected
improvement scored 0.78 with the Gaussian process and 0.81 with the ridge, where the predicted mean scored 0.37 and 0.65, the
nearest-neighbour surrogate 0.71, and a surrogate that only ranks a walk's neighbours 0.52.
"""

RANGES: dict[str, tuple[float, float]] = {
    "initial_count": (2, 30),
    "temperature": (0.02, 2.0),
    "patience": (5, 100),
    "size": (4, 40),
    "mutation": (0.02, 0.5),
    "tournament": (1, 5),
    "differential": (0.3, 1.2),
    "neighbors": (2, 12),
    "ridge": (1e-3, 1.0),
    "trees": (8, 40),
    "leaf": (1, 4),
    "length": (0.2, 2.0),
    "growth": (1.15, 1.8),
    "kappa": (0.3, 4.0),
    "margin": (1e-3, 0.3),
    "explore": (0.005, 0.2),
}
"""Numeric genes and the interval, refined on a logarithmic scale, that each lies in."""

_WHOLE = ("initial_count", "patience", "size", "tournament", "neighbors", "trees", "leaf")
_USED_BY: dict[str, tuple[str, tuple[Any, ...]]] = {
    "temperature": ("walk", ("annealing", "threshold")),
    "patience": ("walk", CHOICES["walk"][1:]),
    "neighborhood": ("walk", CHOICES["walk"][1:]),
    "restart": ("walk", CHOICES["walk"][1:]),
    "size": ("population", CHOICES["population"][1:]),
    "mutation": ("population", CHOICES["population"][1:]),
    "tournament": ("population", CHOICES["population"][1:]),
    "ageing": ("population", CHOICES["population"][1:]),
    "differential": ("population", ("differential",)),
    "neighbors": ("surrogate", ("nearest",)),
    "ridge": ("surrogate", ("ridge",)),
    "trees": ("surrogate", ("forest",)),
    "leaf": ("surrogate", ("forest",)),
    "length": ("surrogate", ("gaussian",)),
    "growth": ("surrogate", ("gaussian",)),
    "prior": ("surrogate", ("gaussian",)),
    "scope": ("surrogate", CHOICES["surrogate"][1:]),
    "acquisition": ("surrogate", CHOICES["surrogate"][1:]),
    "kappa": ("acquisition", ("bound",)),
    "margin": ("acquisition", ("improvement",)),
}


@dataclass(frozen=True)
class Genome:
    """What a program combines. "none" leaves a component out; genes of a component that is left out stay, silent."""

    initial: str = "random"
    initial_count: int = 5
    walk: str = "none"  # the rule by which a walk accepts a neighbour
    temperature: float = 0.3
    neighborhood: str = "hamming"
    patience: int = 25
    restart: str = "random"
    population: str = "none"  # the rule by which a population recombines
    size: int = 12
    mutation: float = 0.1
    tournament: int = 2
    ageing: bool = False
    differential: float = 0.7
    surrogate: str = "none"
    prior: str = "none"  # what the Gaussian process takes for likely before it has seen anything
    scope: str = "pool"  # whether the surrogate ranks what walk and population propose, or everything unseen
    neighbors: int = 5
    ridge: float = 0.05
    trees: int = 16
    leaf: int = 1
    length: float = 0.6
    growth: float = 1.3
    acquisition: str = "mean"
    kappa: float = 1.5
    margin: float = 0.01
    schedule: str = "linear"
    explore: float = 0.02  # chance of a random configuration instead

    def repaired(self) -> Genome:
        """The nearest genome that makes a program: something has to propose configurations."""
        if self.walk == "none" and self.population == "none":
            return replace(self, walk="better") if self.surrogate == "none" else replace(self, scope="space")
        return self

    def is_used(self, gene: str) -> bool:
        """Whether a gene has a bearing on the program."""
        owner, values = _USED_BY.get(gene, ("", ()))
        if not owner:
            return (
                gene != "schedule"
                or self.walk in ("annealing", "threshold")
                or self.is_used("kappa")
                or self.is_used("margin")
            )
        return getattr(self, owner) in values and self.is_used(owner)

    def components(self) -> tuple[str, ...]:
        """The families that are present, of "walk", "population" and "surrogate"."""
        return tuple(family for family in ("walk", "population", "surrogate") if getattr(self, family) != "none")

    def key(self) -> tuple[Any, ...]:
        """What two genomes that make the same program share."""
        return tuple((f.name, getattr(self, f.name)) for f in fields(self) if self.is_used(f.name))

    def line(self) -> str:
        """The comment line that carries the genome."""
        return MARK + json.dumps(asdict(self), separators=(",", ":"))


DESIGN = Genome(
    initial="usual", initial_count=4, surrogate="gaussian", prior="usual", scope="space", length=0.6, growth=1.15,
    acquisition="improvement", margin=0.001, schedule="constant", explore=0.005,
)  # fmt: skip
"""The zoo's `gp_general` in components, as near as they come to it: see `evotune.zoo.gp_general` for why each is so."""


def find_genomes(text: str) -> list[Genome]:
    """The genomes of all programs quoted in a text, in order; lines that are damaged or not genomes are passed over."""
    found = []
    for match in re.finditer(re.escape(MARK) + r"(\{.*\})", text):
        try:
            genome = _checked(json.loads(match.group(1)))
        except (ValueError, TypeError):
            continue
        found.append(genome)
    return found


def _checked(genes: dict[str, Any]) -> Genome:
    known = {f.name for f in fields(Genome)}
    genome = Genome(**{name: value for name, value in genes.items() if name in known})
    for name, allowed in CHOICES.items():
        if getattr(genome, name) not in allowed:
            raise ValueError(f"{name} is {getattr(genome, name)!r}")
    for name, (low, high) in RANGES.items():
        if not low <= float(getattr(genome, name)) <= high:
            raise ValueError(f"{name} is {getattr(genome, name)!r}")
    return genome.repaired()


def drawn(gene: str, rng: Random) -> Any:
    """A value of any gene, at random."""
    if gene in RANGES:
        return random_number(gene, rng)
    values = CHOICES[gene]
    return rng.choices(values, WEIGHTS.get(gene, (1,) * len(values)))[0]


def random_number(gene: str, rng: Random) -> float | int:
    """A value of a numeric gene, log-uniform in its interval."""
    low, high = RANGES[gene]
    value = low * (high / low) ** rng.random()
    return round(value) if gene in _WHOLE else _short(value)


def nudged(gene: str, value: float, rng: Random, width: float = 0.35) -> float | int:
    """Another value near this one: at most `width` of the (logarithmic) interval away."""
    low, high = RANGES[gene]
    while True:
        moved = min(high, max(low, value * (high / low) ** rng.uniform(-width, width)))
        other = round(moved) if gene in _WHOLE else _short(moved)
        if other != value:
            return other


def _short(value: float) -> float:
    """Three digits: a program is to be read."""
    return float(f"{value:.3g}")
