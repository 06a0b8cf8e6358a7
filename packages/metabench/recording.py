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

from .details import Details
from .errors import UserError, choose
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
        details: the parts of each cost, single runs, time stamps; None for a recording that was not read from a file.
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
    details: Details | None = None

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
    def loss_list(self) -> list[float]:
        """`losses` as Python floats: reading one is several times faster than from an array."""
        return self.losses.tolist()

    @cached_property
    def cost_list(self) -> list[float]:
        """`costs` as Python floats."""
        return self.costs.tolist()

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


def load(
    path: Path | str,
    space: Space | None = None,
    objective: str | None = None,
    maximize: bool | None = None,
    definition: Path | None = None,
) -> Recording:
    """Read a recording from a Kernel Tuner cache or T4 file, .json or .json.gz; told apart by content.

    A second reading of the same content comes from a compact form in the user's cache folder.

    Args:
        space: the space that it belongs to; without it and `definition`, the space of the recorded configurations.
        objective: a stored metric, or an expression over stored metrics, parameters and numbers of the file's head
            ("1e-9 * flops / time"); by default what the file names, else "time".
        maximize: whether higher is better; by default what the file says, else what is usual for the objective.
        definition: the T1 file of the space.

    Raises:
        UserError: missing, truncated or malformed; the message names the file and the entry.
    """
    from .formats import compact, kernel_tuner, t4

    path = Path(path)

    def parse() -> Recording:
        content = kernel_tuner.parse(path)
        form = t4 if "results" in content and "cache" not in content else kernel_tuner
        own = space or (Space.from_t1(definition) if definition else None)
        return form.from_content(path, content, own, objective, maximize)

    return compact.cached(path, definition, {"objective": objective, "maximize": maximize}, parse, space)


def save(recording: Recording, path: Path | str, form: str = "cache") -> Path:
    """Write a recording; what `load` reads back is equal.

    Args:
        form: "cache" (Kernel Tuner's) or "t4".
    """
    from .formats import kernel_tuner, t4

    writers = {"cache": kernel_tuner.write, "t4": t4.write}
    return writers[choose(form, writers, "form of a recording")](recording, path)
