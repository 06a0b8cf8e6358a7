"""Learning-rate schedules as functions of the step: nothing to save, nothing to restore."""

from __future__ import annotations

import math
from collections.abc import Callable

Schedule = Callable[[float, float], float]  # steps done after the warm-up, of how many -> multiple of the rate
TIMESCALE = 100.0  # of `inverse_sqrt`, steps


def constant(step: float, steps: float) -> float:
    """The rate itself."""
    return 1.0


def linear(step: float, steps: float) -> float:
    """To zero in a straight line."""
    return 1.0 - step / steps


def cosine(step: float, steps: float) -> float:
    """Half a cosine to zero."""
    return 0.5 * (1 + math.cos(math.pi * step / steps))


def late(step: float, steps: float) -> float:
    """Constant for four fifths, then to zero in a straight line (warm-up, stable, decay)."""
    return min(1.0, 5 * (1 - step / steps))


def inverse_sqrt(step: float, steps: float) -> float:
    """1 / sqrt(1 + step / TIMESCALE), however long the run is; much as packaged mulo falls of itself, with 150."""
    return (1 + step / TIMESCALE) ** -0.5


SCHEDULES: dict[str, Schedule] = {
    "constant": constant, "linear": linear, "cosine": cosine, "late": late, "inverse_sqrt": inverse_sqrt
}  # fmt: skip


def multiple(schedule: str, step: int, steps: int, warmup: float) -> float:
    """What the rate is multiplied by at `step` (from 0) of `steps`; `warmup`: share of the run that rises from zero."""
    rising = warmup * steps
    if step < rising:
        return (step + 1) / (rising + 1)
    return SCHEDULES[schedule](step - rising, max(1.0, steps - rising))


def check(schedule: str) -> str:
    """Raises ValueError that lists the schedules."""
    if schedule not in SCHEDULES:
        raise ValueError(f"unknown schedule {schedule!r}; allowed: {', '.join(SCHEDULES)}")
    return schedule
