"""Families of inner tasks, by name; mixtures of them; tasks as lines of JSON."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from .base import Data as Data
from .base import Task as Task
from .conv import ConvTask
from .mlp import MLPTask
from .transformer import TransformerTask

FAMILIES: dict[str, type[Task]] = {cls.family: cls for cls in (MLPTask, ConvTask, TransformerTask)}
MIXTURES: dict[str, dict[str, float]] = {
    "mlp_family": {"mlp": 1.0},
    "conv_family": {"conv": 1.0},
    "transformer_family": {"transformer": 1.0},
    "mixed": {"mlp": 0.5, "conv": 0.2, "transformer": 0.3},
}


def draw(mixture: Mapping[str, float], rng: random.Random) -> Task:
    """A random task: the family by its share, then that family's own odds."""
    family = rng.choices(list(mixture), list(mixture.values()))[0]
    return FAMILIES[family].draw(rng)


def mixture_named(name: str) -> dict[str, float]:
    """Shares of the families.

    Raises:
        ValueError: no mixture has that name; lists those that there are.
    """
    if name not in MIXTURES:
        raise ValueError(f"unknown tasks {name!r}; allowed: {', '.join(MIXTURES)}")
    return MIXTURES[name]


def task_from_json(entry: Mapping[str, Any]) -> Task:
    """A task from the dict that `Task.as_json` gives.

    Raises:
        ValueError: an unknown family or field.
    """
    values = dict(entry)
    family = values.pop("family", None)
    if family not in FAMILIES:
        raise ValueError(f"unknown family {family!r} of tasks; allowed: {', '.join(FAMILIES)}")
    allowed = {f.name for f in fields(FAMILIES[family])}
    if unknown := set(values) - allowed:
        raise ValueError(
            f"a {family} task has no field {', '.join(sorted(unknown))}; it has {', '.join(sorted(allowed))}"
        )
    return FAMILIES[family](**values)
