"""Confidence intervals by resampling: over the repeats of each space, and over the spaces too."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

RESAMPLES = 10_000
LEVEL = 0.95


@dataclass(frozen=True)
class Estimate:
    """A mean with its interval (percentile bootstrap, 95 %)."""

    mean: float
    low: float
    high: float

    def __format__(self, spec: str) -> str:
        spec = spec or ".3f"
        return f"{self.mean:{spec}} [{self.low:{spec}}, {self.high:{spec}}]"

    def __str__(self) -> str:
        return format(self)


def over_repeats(runs: list[np.ndarray], seed: int = 0) -> Estimate:
    """Mean over spaces of the mean over runs; runs are resampled within each space.

    Args:
        runs: for each space the scores of its runs, float (repeats,).
    """
    return _estimate(float(np.mean([r.mean() for r in runs])), _resample(runs, seed))


def over_spaces(runs: list[np.ndarray], seed: int = 0) -> Estimate:
    """As `over_repeats`, and the spaces are resampled as well: for claims about spaces that were not measured."""
    rng = np.random.default_rng(seed)
    means = np.stack([r[rng.integers(len(r), size=(RESAMPLES, len(r)))].mean(axis=1) for r in runs])
    picked = rng.integers(len(runs), size=(len(runs), RESAMPLES))
    return _estimate(float(np.mean([r.mean() for r in runs])), np.take_along_axis(means, picked, axis=0).mean(axis=0))


def paired_difference(ours: list[np.ndarray], theirs: list[np.ndarray], seed: int = 0) -> Estimate:
    """Mean difference of two optimizers that ran on the same seeds: repeats are resampled in pairs."""
    return over_repeats([a - b for a, b in zip(ours, theirs, strict=True)], seed)


@dataclass(frozen=True)
class Comparison:
    """Two optimizers on the same seeds.

    Attributes:
        difference: how much better the first is.
        p: chance of so large a difference, either way, if the two were the same; adjusted for the number of pairs.
        spread: standard deviation, over repeats, of the difference in the mean over spaces.
    """

    better: str
    worse: str
    difference: Estimate
    p: float
    spread: float

    @property
    def significant(self) -> bool:
        """At the 5 % level, over all pairs together."""
        return self.p < 1 - LEVEL


def compare(
    runs: Mapping[str, list[np.ndarray]], couples: Sequence[tuple[str, str]], seed: int = 0
) -> list[Comparison]:
    """Paired comparisons by sign flips; p-values adjusted after Holm, so that the chance of any false finding is 5 %.

    If two optimizers are the same, their difference in a run is as likely the one sign as the other, so the mean difference is
    compared with those of random signs. This is right at any number of repeats; a bootstrap of three calls noise significant.

    Args:
        runs: for each optimizer, for each space, the scores of its runs in the order of their seeds, float (repeats,).
    """
    spaces, repeats = (len(next(iter(runs.values()))), len(next(iter(runs.values()))[0]))
    signs = np.random.default_rng(seed).choice([-1.0, 1.0], size=(RESAMPLES, spaces * repeats))
    found = []
    for a, b in couples:
        differences = [x - y for x, y in zip(runs[a], runs[b], strict=True)]
        flat = np.concatenate(differences)
        as_large = np.abs(signs @ flat) >= abs(flat.sum()) * (1 - 1e-12)
        spread = float(np.mean(differences, axis=0).std(ddof=1)) if repeats > 1 else np.nan
        p = (1 + int(as_large.sum())) / (1 + RESAMPLES)
        found.append(Comparison(a, b, over_repeats(differences, seed), p, spread))
    adjusted = holm(np.array([c.p for c in found]))
    return [replace(c, p=float(p)) for c, p in zip(found, adjusted, strict=True)]


def holm(p: np.ndarray) -> np.ndarray:
    """p-values, float (k,), adjusted for being k of them (Holm 1979)."""
    order = np.argsort(p)
    stepped = np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1))
    adjusted = np.empty_like(p)
    adjusted[order] = np.minimum(stepped, 1.0)
    return adjusted


def repeats_to_see(difference: float, spread: float) -> int:
    """Repeats needed before a true difference shows at the 5 % level with 80 % power, when pairs differ by `spread` (one s.d.).

    Raises:
        ValueError: the difference is not positive.
    """
    if not difference > 0:
        raise ValueError(f"a difference must be positive, not {difference}")
    z = 1.96 + 0.8416
    return max(2, int(np.ceil((z * spread / difference) ** 2)))


def _resample(runs: list[np.ndarray], seed: int) -> np.ndarray:
    """Means over spaces of means over runs drawn again, float64 (RESAMPLES,)."""
    rng = np.random.default_rng(seed)
    return np.mean([r[rng.integers(len(r), size=(RESAMPLES, len(r)))].mean(axis=1) for r in runs], axis=0)


def _estimate(mean: float, resampled: np.ndarray) -> Estimate:
    tail = 100 * (1 - LEVEL) / 2
    low, high = np.percentile(resampled, [tail, 100 - tail])
    return Estimate(mean, float(low), float(high))
