"""Confidence intervals by resampling: over the repeats of each space, and over the spaces too."""

from __future__ import annotations

from dataclasses import dataclass

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
    rng = np.random.default_rng(seed)
    resampled = [r[rng.integers(len(r), size=(RESAMPLES, len(r)))].mean(axis=1) for r in runs]
    return _estimate(float(np.mean([r.mean() for r in runs])), np.mean(resampled, axis=0))


def over_spaces(runs: list[np.ndarray], seed: int = 0) -> Estimate:
    """As `over_repeats`, and the spaces are resampled as well: for claims about spaces that were not measured."""
    rng = np.random.default_rng(seed)
    means = np.stack([r[rng.integers(len(r), size=(RESAMPLES, len(r)))].mean(axis=1) for r in runs])
    picked = rng.integers(len(runs), size=(len(runs), RESAMPLES))
    return _estimate(float(np.mean([r.mean() for r in runs])), np.take_along_axis(means, picked, axis=0).mean(axis=0))


def paired_difference(ours: list[np.ndarray], theirs: list[np.ndarray], seed: int = 0) -> Estimate:
    """Mean difference of two optimizers that ran on the same seeds: repeats are resampled in pairs."""
    return over_repeats([a - b for a, b in zip(ours, theirs, strict=True)], seed)


def repeats_to_see(difference: float, spread: float, level: float = LEVEL) -> int:
    """Repeats needed before a true difference shows at this level with 80 % power, when pairs differ by `spread` (one s.d.)."""
    if not difference > 0:
        raise ValueError(f"a difference must be positive, not {difference}")
    z = {0.95: 1.96, 0.99: 2.576}[level] + 0.8416
    return max(2, int(np.ceil((z * spread / difference) ** 2)))


def _estimate(mean: float, resampled: np.ndarray) -> Estimate:
    tail = 100 * (1 - LEVEL) / 2
    low, high = np.percentile(resampled, [tail, 100 - tail])
    return Estimate(mean, float(low), float(high))
