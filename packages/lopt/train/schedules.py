"""Learning-rate schedules as functions of the step: nothing to save, nothing to restore."""

from __future__ import annotations

import math
from collections.abc import Callable

Schedule = Callable[[float], float]  # share of the run that is done, 0 to 1 -> multiple of the rate


def constant(share: float) -> float:
    """The rate itself."""
    return 1.0


def linear(share: float) -> float:
    """To zero in a straight line."""
    return 1.0 - share


def cosine(share: float) -> float:
    """Half a cosine to zero."""
    return 0.5 * (1 + math.cos(math.pi * share))


def late(share: float) -> float:
    """Constant for four fifths, then to zero in a straight line (warm-up, stable, decay)."""
    return min(1.0, 5 * (1 - share))


SCHEDULES: dict[str, Schedule] = {"constant": constant, "linear": linear, "cosine": cosine, "late": late}


def multiple(schedule: str, step: int, steps: int, warmup: float) -> float:
    """What the rate is multiplied by at `step` (from 0) of `steps`; `warmup`: share of the run that rises from zero."""
    rising = warmup * steps
    if step < rising:
        return (step + 1) / (rising + 1)
    return SCHEDULES[schedule]((step - rising) / max(1.0, steps - rising))


def check(schedule: str) -> str:
    """Raises ValueError that lists the schedules."""
    if schedule not in SCHEDULES:
        raise ValueError(f"unknown schedule {schedule!r}; allowed: {', '.join(SCHEDULES)}")
    return schedule
