"""A recording: a search space that was measured whole on one device, with value, cost and status of every configuration.

Costs are seconds of one evaluation with everything that it took: compilation, verification, all kernel runs, framework. They
are what an optimizer pays on the simulated clock (docs/scoring.md, "The data of a space").
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from .errors import UserError
from .space import Space

CORRECT = "correct"
STATUSES = (CORRECT, "constraints", "compile", "runtime", "timeout", "verification")
"""What an evaluation can end as: T4's invalidity words ("correctness" there is "verification" here)."""


@dataclass(frozen=True)
class Recording:
    """One space, measured on one device.

    Attributes:
        kernel, device: what was measured where; `name` is "kernel/device".
        space: the space; arrays below are in its row order.
        values: float64 (n,), the objective in `unit`; NaN where the evaluation failed.
        costs: float64 (n,), seconds that the evaluation took, failures included.
        status: str (n,), one of `STATUSES`.
        objective, unit, maximize: what `values` holds and which way is better.
        metrics: further measured columns {name: float64 (n,)}, such as "GFLOP/s".
        meta: everything else the file said: processor, flags, versions, problem size.
    """

    kernel: str
    device: str
    space: Space
    values: np.ndarray
    costs: np.ndarray
    status: np.ndarray
    objective: str = "time"
    unit: str = "ms"
    maximize: bool = False
    metrics: dict[str, np.ndarray] = field(default_factory=dict)
    meta: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        n = len(self.space)
        for name in ("values", "costs", "status"):
            if len(getattr(self, name)) != n:
                raise UserError(f"{self.name}: {len(getattr(self, name))} {name} for {n} configurations")
        if not np.isfinite(self.values).any():
            raise UserError(f"{self.name}: no configuration was measured successfully, so there is nothing to replay")
        if not (np.isfinite(self.costs).all() and (self.costs > 0).all()):
            row = int(np.flatnonzero(~(np.isfinite(self.costs) & (self.costs > 0)))[0])
            raise UserError(f"{self.name}: configuration {self.space[row]} has no positive cost, but {self.costs[row]}")

    @property
    def name(self) -> str:
        """ "kernel/device"."""
        return f"{self.kernel}/{self.device}"

    @cached_property
    def losses(self) -> np.ndarray:
        """Values with lower better and +inf for failures, float64 (n,): what an optimizer is told."""
        signed = -self.values if self.maximize else self.values
        return np.where(np.isnan(signed), np.inf, signed)

    @cached_property
    def optimum(self) -> float:
        """The best value."""
        return float(np.nanmax(self.values) if self.maximize else np.nanmin(self.values))

    @cached_property
    def median(self) -> float:
        """Median of the valid values."""
        return float(np.nanmedian(self.values))

    @property
    def failures(self) -> int:
        """Number of configurations without a value."""
        return int(np.isnan(self.values).sum())

    def __repr__(self) -> str:
        return (
            f"Recording({self.name}: {len(self.space):,} configurations, {self.failures} failed, "
            f"optimum {self.optimum:.4g} {self.unit}, median {self.median:.4g} {self.unit})"
        )


def load(path: Path | str, **options: Any) -> Recording:
    """Read a recording from a Kernel Tuner cache file, .json or .json.gz; options as `metabench.formats.kernel_tuner.read`.

    Raises:
        UserError: missing, truncated or malformed; the message names the file and the entry.
    """
    from .formats import kernel_tuner

    return kernel_tuner.read(path, **options)


def save(recording: Recording, path: Path | str) -> Path:
    """Write a recording as a Kernel Tuner cache file; what `load` reads back is equal."""
    from .formats import kernel_tuner

    return kernel_tuner.write(recording, path)
