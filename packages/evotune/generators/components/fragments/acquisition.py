"""Acquisition: how much a configuration is worth measuring, from what a surrogate predicts for it. Higher is better."""

from __future__ import annotations

import math

import numpy as np

KAPPA = 2.0  # standard deviations of optimism at full heat
MARGIN = 0.01  # improvement asked for at full heat, in units of the targets


def acquire_mean(mean: np.ndarray, spread: np.ndarray, best: float, heat: float) -> np.ndarray:
    """Exploit: the lowest prediction."""
    return -mean


def acquire_bound(mean: np.ndarray, spread: np.ndarray, best: float, heat: float) -> np.ndarray:
    """Lower confidence bound: optimism, less of it as the budget runs out."""
    return KAPPA * heat * spread - mean


def acquire_improvement(mean: np.ndarray, spread: np.ndarray, best: float, heat: float) -> np.ndarray:
    """Expected improvement on the best so far (Jones et al. 1998); where none is to be expected, the nearest to some."""
    spread = np.maximum(spread, 1e-9)
    z = np.clip((best - MARGIN * heat - mean) / spread, -30.0, 30.0)
    below = 0.5 * (1.0 + np.tanh(0.7978845608 * (z + 0.044715 * z**3)))  # the normal distribution function, to 1e-3
    gain = spread * (z * below + np.exp(-0.5 * z * z) / math.sqrt(2.0 * math.pi))
    return gain if gain.max() > 1e-9 else z


def pick(rows: np.ndarray, score: np.ndarray) -> int:
    """The row of the highest score. Scores are rounded first, so that the last bit of a sum does not decide."""
    top = float(np.max(np.abs(score))) or 1.0
    return int(rows[int(np.argmax(np.round(score / top, 9)))])
