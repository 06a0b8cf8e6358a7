"""Schedules: how bold the search still is, from 1 down to 0, by the fraction of the budget that is spent."""

from __future__ import annotations

import math


def schedule_constant(spent: float) -> float:
    """As bold at the end as at the start."""
    return 1.0


def schedule_linear(spent: float) -> float:
    """Down in a straight line."""
    return max(0.0, 1.0 - spent)


def schedule_cosine(spent: float) -> float:
    """Down slowly at both ends."""
    return 0.5 * (1.0 + math.cos(math.pi * min(spent, 1.0)))


def schedule_exponential(spent: float) -> float:
    """Down fast at first: a tenth is left at half of the budget."""
    return math.exp(-4.6 * spent)
