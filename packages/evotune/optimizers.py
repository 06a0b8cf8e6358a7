"""Optimizers by name: the zoo's, Kernel Tuner's and pyATF's, any Python file with one in it. metabench finds `provider` here."""

from __future__ import annotations

import functools
import hashlib
import sys
import types
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from metabench.errors import UserError, choose

from . import adapters, zoo
from .contract import Rejected, optimizer_class


@dataclass(frozen=True)
class Factory:
    """Makes a fresh optimizer for every run. It can be pickled: it holds names and options, no optimizer."""

    name: str
    options: dict[str, Any] = field(default_factory=dict)

    def __call__(self) -> Any:
        """A fresh optimizer."""
        return self._kind()(**self.options)

    @property
    def provenance(self) -> dict[str, Any]:
        """Where the optimizer comes from, as its source file says; {} where it says nothing."""
        return dict(getattr(sys.modules.get(getattr(self._kind(), "__module__", "")), "PROVENANCE", {}))

    def _kind(self) -> Callable[..., Any]:
        if self.name.endswith(".py"):
            return from_file(self.name)
        if self.name in zoo.names():
            return from_file(zoo.entry(self.name).path)
        return functools.partial(adapters.make, self.name)


class Provider:
    """What the entry point `metabench.optimizers` names."""

    def names(self) -> list[str]:
        """Names of all optimizers: those of the zoo, and Kernel Tuner's and pyATF's where these are installed."""
        return sorted({*zoo.names(), *adapters.names()})

    def make(self, name: str, **options: Any) -> Factory:
        """A factory: called without arguments, it returns a fresh optimizer for one run.

        Args:
            name: one of `names()`, or the path of a Python file that ends in .py.
            options: keyword arguments of the optimizer.

        Raises:
            UserError: no such name or file, no optimizer in the file, or an option that it does not take.
        """
        if not name.endswith(".py"):
            choose(name, self.names(), "optimizer")
        factory = Factory(name, options)
        try:
            factory()  # wrong options are told now, not in the middle of a run
        except TypeError as error:
            raise UserError(f"optimizer {name!r} cannot be made with {options}: {error}") from error
        return factory


@functools.cache
def from_file(path: Path | str) -> Callable[..., Any]:
    """The optimizer class that a Python file defines. The file is executed, in this process: for code that is trusted.

    Raises:
        UserError: no such file, or no optimizer in it.
    """
    path = Path(path)
    if not path.is_file():
        raise UserError(f"there is no file {path}")
    source = path.read_text()
    try:
        name = optimizer_class(source)
    except Rejected as error:
        raise UserError(f"{path} defines no optimizer: {error}") from error
    module = types.ModuleType(f"evotune_loaded_{path.stem}_{hashlib.sha256(source.encode()).hexdigest()[:12]}")
    module.__file__ = str(path)
    sys.modules[module.__name__] = module  # where dataclasses and pickles look a class's module up
    try:
        exec(compile(source, str(path), "exec"), vars(module))
    except Exception as error:
        raise UserError(f"{path} cannot be loaded: {type(error).__name__}: {error}") from error
    return getattr(module, name)


provider = Provider()
