"""Optimizers of ours as Kernel Tuner strategies."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from metabench.errors import UserError


def as_kernel_tuner_strategy(optimizer: Any, **options: Any) -> Any:
    """What `kernel_tuner.tune_kernel(strategy=...)` takes, for an optimizer of ours.

    Args:
        optimizer: a name or a file as in `evotune.optimizers`, made with `options`; or an optimizer itself.

    Raises:
        UserError: Kernel Tuner is missing, or there is no optimizer of that name.
    """
    if isinstance(optimizer, str):
        from ..optimizers import provider

        optimizer = provider.make(optimizer, **options)()
    try:
        from kernel_tuner.strategies.wrapper import OptAlgWrapper
    except ImportError as error:
        raise UserError("Kernel Tuner is not installed: pip install 'metaopt-toolkit[tune]'") from error
    return OptAlgWrapper(_unsnapped(optimizer))


def _unsnapped(optimizer: Any) -> Any:
    """An optimizer with the attribute by which Kernel Tuner knows that configurations are to be taken as they are."""
    if not hasattr(optimizer, "costfunc_kwargs"):
        try:
            optimizer.costfunc_kwargs = {"scaling": False, "snap": False}
        except AttributeError:
            return _Wrapped(optimizer)
    return optimizer


class _Wrapped:
    """An optimizer that takes no attributes."""

    def __init__(self, optimizer: Callable[[Any, Any], Any]) -> None:
        self.optimizer, self.costfunc_kwargs = optimizer, {"scaling": False, "snap": False}

    def __call__(self, func: Any, searchspace: Any) -> Any:
        return self.optimizer(func, searchspace)
