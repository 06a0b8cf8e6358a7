"""The Gaussian process of `gp_general`, started from recordings of the same kernel on other devices.

What other devices measured is joined by configuration and enters three times. First of all the configuration of best mean
rank is measured. The sources' targets (log cost, -1 at their best, 0 at their median) are features, so that configurations that
do alike elsewhere are near each other. And they are the prior mean: their mean with weight one, each of them with a weight
around zero, all of which the data decide.

Beside this view of the space stands the one of `gp_general`, and whenever hyperparameters are fitted, the view that explains
the measurements better is taken, so that sources that mislead are dropped. Two measurements that `gp_general` would start from
follow the first: without them, sources that are wrong would be believed for as long as everything measured was their advice.

When to use it: whenever the same kernel was recorded on any other device, or at another problem size.

Needs NumPy and gp_general.py beside it.
"""

from __future__ import annotations

import gzip
import json
import math
import random
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

try:
    from evotune.zoo.gp_general import GPGeneral, Log, Target, View, first_rows, search
except ImportError:  # dropped into Kernel Tuner, beside that file
    from gp_general import GPGeneral, Log, Target, View, first_rows, search  # type: ignore[no-redef]

PROVENANCE = {
    "kind": "designed",
    "by": "the metaopt-toolkit authors",
    "spaces": [
        "convolution_milo/A100", "convolution_milo/A4000", "convolution_milo/MI250X",
        "dedispersion_milo/A100", "dedispersion_milo/A4000", "dedispersion_milo/MI250X",
    ],
}  # fmt: skip
SCORES = {  # P under `direct`, its 95 % interval, runs a space: benchmarks/zoo/measure.py
    "train": (0.959, 0.954, 0.963, 25),
    "test": (0.991, 0.989, 0.993, 25),
    "all 12": (0.975, 0.972, 0.977, 25),
    "all 12 without conv. W6600": (0.973, 0.970, 0.975, 25),
}

ODDS = 2.0  # logarithm of the odds that other devices tell something
UNADVISED = 2  # measurements, after the first, that the sources do not choose
OWN_SPREAD = 0.4  # of the weight of each source by itself
NAMES_SPREAD = 0.3  # of the weight of what gp_general knows from names and values, beside what was measured elsewhere
Source = Any


class GPTransfer(GPGeneral):
    """Bayesian optimization that knows how the same kernel did elsewhere.

    Args:
        sources: each the path of a Kernel Tuner cache file (.json, .json.gz), a mapping {configuration: cost} with
            configurations in this search space's order of parameters, or an object with `space.names`,
            `space.configurations` and `losses` (a metabench Recording). Without sources this is `gp_general`.
        options: those of `GPGeneral`.
    """

    def __init__(self, sources: Sequence[Source] = (), **options: Any) -> None:
        super().__init__(**options)
        self.sources = [sources] if isinstance(sources, str | Mapping) else list(sources)

    def __call__(self, func: Any, searchspace: Any) -> tuple[Any, float]:
        """Measure until the budget ends (`func` raises) or nothing is left; the best configuration and its cost."""
        columns = [joined(source, searchspace) for source in self.sources]
        columns = [c for c in columns if np.isfinite(c).sum() >= 2 and np.ptp(c[np.isfinite(c)]) > 0]
        if not columns:
            return super().__call__(func, searchspace)
        rng = np.random.default_rng(random.getrandbits(63) if self.seed is None else self.seed)
        views = [
            TransferView(searchspace, columns, self.names, self.structure),
            View(searchspace, self.names, self.structure),
        ]
        log = Log(func, searchspace.list)
        for row in [leader(columns), *first_rows(views[1], self.initial, rng)[:UNADVISED]]:
            if log.unseen[row]:
                log.measure(row)
        return search(views, log, rng)


class TransferView(View):
    """The space as `View` sees it, and as other devices did."""

    odds = ODDS

    def __init__(self, searchspace: Any, columns: list[np.ndarray], names: bool, structure: bool) -> None:
        super().__init__(searchspace, names, structure)
        targets = [Target(c) for c in columns]
        self.elsewhere = np.stack(
            [t(np.where(np.isnan(c), math.inf, c)) for t, c in zip(targets, columns, strict=True)]
        )
        self.elsewhere[:, :] = np.where(np.isnan(columns), np.nan, self.elsewhere)
        fill = np.nan_to_num(nanmean(self.elsewhere), nan=0.0)
        self.elsewhere = np.where(np.isnan(self.elsewhere), fill, self.elsewhere).astype(np.float32)
        low, high = self.elsewhere.min(axis=1, keepdims=True), self.elsewhere.max(axis=1, keepdims=True)
        self._unit = (self.elsewhere - low) / np.maximum(high - low, 1e-9)
        mean, count = self.elsewhere.mean(axis=0), len(columns)
        own = self.elsewhere if count > 1 else self.elsewhere[:0]
        known = self.prior.shape[1]
        self.prior = np.concatenate([mean[None], own, self.prior.T]).T.astype(np.float32, order="C")
        self.slope = np.array([1.0] + [0.0] * (len(own) + known))
        self.spread = np.array([0.5] + [OWN_SPREAD] * len(own) + [NAMES_SPREAD] * known)
        self.scale = float(np.mean([t.scale for t in targets]))

    def features(self, rows: Any = slice(None)) -> np.ndarray:
        """Features of the configuration and its targets elsewhere, float32 (r, f)."""
        return np.concatenate([super().features(rows), self._unit.T[rows]], axis=1).astype(np.float32, order="C")


def nanmean(values: np.ndarray) -> np.ndarray:
    """Mean over the first axis of what is no NaN; NaN where nothing is."""
    count = np.isfinite(values).sum(axis=0)
    return np.where(count, np.nansum(values, axis=0) / np.maximum(count, 1), np.nan)


def leader(columns: list[np.ndarray]) -> int:
    """The row of best mean rank; unknown and failed ones rank last."""
    ranks = [np.argsort(np.argsort(np.where(np.isfinite(c), c, np.inf), kind="stable"), kind="stable") for c in columns]
    return int(np.mean(ranks, axis=0).argmin())


def joined(source: Source, searchspace: Any) -> np.ndarray:
    """Costs that a source has for each configuration of the space, float64 (n,); inf where it failed, NaN where it is unknown."""
    costs = read(source, list(searchspace.param_names))
    return np.array([costs.get(tuple(config), math.nan) for config in searchspace.list])


def read(source: Source, names: list[str]) -> dict[tuple, float]:
    """{configuration: cost} of a source, values in the order of `names`.

    Raises:
        ValueError: the source lacks one of the parameters.
    """
    if isinstance(source, Mapping):
        return {tuple(config): float(cost) for config, cost in source.items()}
    if hasattr(source, "losses"):
        return ordered(source.space.names, source.space.configurations, source.losses, names)
    opened = gzip.open(source, "rt") if str(source).endswith(".gz") else open(source)  # noqa: SIM115, PTH123
    with opened as file:
        content = json.load(file)
    entries, objective = list(content["cache"].values()), content.get("objective", "time")
    keys = list(content["tune_params_keys"])
    costs = (float(v) if isinstance(v := e.get(objective), int | float) else math.inf for e in entries)
    return ordered(keys, ([e[k] for k in keys] for e in entries), costs, names)


def ordered(keys: Sequence[str], configs: Iterable, costs: Iterable, names: list[str]) -> dict[tuple, float]:
    """Configurations with parameters `keys`, put into the order of `names`."""
    if missing := [name for name in names if name not in keys]:
        raise ValueError(f"a source of transfer lacks the parameter {missing[0]!r}; it has {', '.join(keys)}")
    place = [list(keys).index(name) for name in names]
    return {tuple(config[j] for j in place): float(cost) for config, cost in zip(configs, costs, strict=True)}
