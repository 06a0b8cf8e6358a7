"""Optimizers by name. metabench knows none itself: packages provide them through the entry-point group `metabench.optimizers`.

An entry point names an object with `names() -> list[str]` and `make(name, **options) -> factory`, where a factory is a callable
without arguments that returns a fresh optimizer for one run.
"""

from __future__ import annotations

import functools
import importlib.metadata
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from .errors import choose
from .replay import Optimizer

GROUP = "metabench.optimizers"


class Provider(Protocol):
    """What an entry point of the group names."""

    def names(self) -> list[str]:
        """Optimizers that it provides."""
        ...

    def make(self, name: str, **options: Any) -> Callable[[], Optimizer]:
        """A factory for one of them, or for the path of a Python file if it takes those."""
        ...


def providers() -> list[Provider]:
    """All installed providers."""
    return [point.load() for point in importlib.metadata.entry_points(group=GROUP)]


def available() -> list[str]:
    """Names of all optimizers."""
    return sorted({name for provider in providers() for name in provider.names()})


def make(name: str, **options: Any) -> Callable[[], Optimizer]:
    """A factory for the optimizer called `name`, or for the optimizer in the file `name` ending in .py.

    Raises:
        UserError: no provider has it; the message lists the allowed names.
    """
    for provider in providers():
        if name in provider.names() or name.endswith(".py"):
            return provider.make(name, **options)
    choose(name, available(), "optimizer")
    raise AssertionError("unreachable: choose raises")


@dataclass(frozen=True)
class Named:
    """A factory by name and options: unlike the factory itself, it can be sent to another process.

    Attributes:
        name: as for `make`.
        options: (keyword, value) pairs of the optimizer.
    """

    name: str
    options: tuple[tuple[str, Any], ...] = ()

    @property
    def label(self) -> str:
        """What a table calls it: "pso", "pso(popsize=10)", or the stem of a file's name."""
        short = Path(self.name).stem if self.name.endswith(".py") else self.name
        return f"{short}({', '.join(f'{k}={v}' for k, v in self.options)})" if self.options else short

    @property
    def provenance(self) -> dict[str, Any]:
        """What the optimizer says of where it comes from; empty if it says nothing."""
        factory = _made(self)
        return getattr(factory, "provenance", None) or getattr(factory(), "provenance", None) or {}

    def __call__(self) -> Optimizer:
        """A fresh optimizer."""
        return _made(self)()


@functools.cache
def _made(named: Named) -> Callable[[], Optimizer]:
    """Its factory; a file is then read once, not once a run."""
    return make(named.name, **dict(named.options))
