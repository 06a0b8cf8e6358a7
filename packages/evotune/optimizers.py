"""Optimizers by name: the zoo's, Kernel Tuner's strategies, any Python file that defines one. metabench finds `provider` here."""

from __future__ import annotations

import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

from metabench.errors import UserError, choose

from . import adapters, zoo
from .contract import Rejected, optimizer_class

Factory = Callable[[], Any]


class Provider:
    """What the entry point `metabench.optimizers` names."""

    def names(self) -> list[str]:
        """Names of all optimizers: those of the zoo, Kernel Tuner's where it is installed, and short names for these."""
        kernel_tuner = adapters.kernel_tuner_names()
        short = [alias for alias, name in adapters.iterate_aliases() if name in kernel_tuner]
        return sorted({*zoo.names(), *kernel_tuner, *short})

    def make(self, name: str, **options: Any) -> Factory:
        """A factory: called without arguments, it returns a fresh optimizer for one run.

        Args:
            name: one of `names()`, or the path of a Python file that ends in .py.
            options: keyword arguments of the optimizer.

        Raises:
            UserError: no such name or file, no optimizer in the file, or an option that it does not take.
        """
        if name.endswith(".py"):
            return _checked(from_file(name), name, options)
        choose(name, self.names(), "optimizer")
        if name in zoo.names():
            return _checked(from_file(zoo.entry(name).path), name, options)
        return _checked(adapters.KernelTunerStrategy, name, {"name": name, **options})


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
    module = types.ModuleType(path.stem)
    module.__file__ = str(path)
    try:
        exec(compile(source, str(path), "exec"), vars(module))
    except Exception as error:
        raise UserError(f"{path} cannot be loaded: {type(error).__name__}: {error}") from error
    return getattr(module, name)


def _checked(kind: Callable[..., Any], name: str, options: dict[str, Any]) -> Factory:
    """The factory, tried once so that wrong options are told at once."""

    def factory() -> Any:
        return kind(**options)

    try:
        factory()
    except TypeError as error:
        raise UserError(f"optimizer {name!r} cannot be made with {options}: {error}") from error
    return factory


provider = Provider()
