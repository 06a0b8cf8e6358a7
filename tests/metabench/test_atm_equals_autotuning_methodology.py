"""`atm` is worth having only if it is the published estimator: equal to autotuning_methodology 1.1.0 on the same runs.

The stored runs cover minimisation and maximisation, failures, revisits, runs that end early, 3 and 50 repeats. What the package
said of them is stored too, and where it is installed it is asked again.
"""

from __future__ import annotations

import importlib.metadata
import json
import tempfile
import warnings
from pathlib import Path

import numpy as np
import pytest

from metabench import Recording, Trace, atm, load, replay, save
from metabench.files import read_json
from metabench.replay import Session

DATA = Path(__file__).resolve().parent / "data"
STORED = read_json(DATA / "atm_traces.json.gz") if (DATA / "atm_traces.json.gz").is_file() else []
IDS = [f"{c['recording']}-{c['optimizer']}-{len(c['asks'])}" for c in STORED]


def trace_of(asks: list[int]) -> Trace:
    return Trace(
        "", "", 0, np.unique(asks), np.empty(0), len(asks), 0, 0, "budget", asks=np.array(asks, dtype=np.int32)
    )


@pytest.mark.parametrize("seed", [0, 7])
@pytest.mark.parametrize("case", STORED, ids=IDS)
def test_p_is_what_the_package_said(case: dict, seed: int) -> None:
    pytest.importorskip("sklearn", reason="`atm` needs scikit-learn (extra report)")
    ax = atm.axis(load(DATA / f"{case['recording']}.json.gz"))
    p = atm.performance([trace_of(a) for a in case["asks"]], ax, seed).mean()
    assert p == pytest.approx(case["p"][str(seed)], abs=1e-6)


@pytest.mark.parametrize("case", STORED, ids=IDS)
def test_p_is_what_the_package_says_now(case: dict) -> None:
    version = pytest.importorskip("autotuning_methodology", reason="autotuning_methodology is not installed")
    assert version and importlib.metadata.version("autotuning_methodology") == "1.1.0"
    ax = atm.axis(load(DATA / f"{case['recording']}.json.gz"))
    ours = atm.performance([trace_of(a) for a in case["asks"]], ax, seed=3).mean()
    assert ours == pytest.approx(the_packages_p(ax.recording, case["asks"], seed=3), abs=1e-6)


def the_packages_p(recording: Recording, asks: list[list[int]], seed: int) -> float:
    """P of runs given by their legal requests, computed by autotuning_methodology from T4 files, as its own pipeline does."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from autotuning_methodology.caching import ResultsDescription
        from autotuning_methodology.report_experiments import (
            get_aggregation_data,
            get_strategies_aggregated_performance,
        )
        from autotuning_methodology.runner import write_results
        from autotuning_methodology.searchspace_statistics import SearchspaceStatistics

        times = ["compilation", "runtimes", "framework", "search_algorithm", "validation"]
        with tempfile.TemporaryDirectory() as folder:
            t4 = save(recording, Path(folder) / "space.json", form="t4")
            objective, minimise = recording.objective, not recording.maximize
            statistics = SearchspaceStatistics("app", "gpu", minimise, times, [objective], t4)
            told = ResultsDescription(
                Path(folder) / "run", "app", "gpu", "ours", "Ours", True, times, [objective], minimise
            )
            write_results(_as_results(json.loads(t4.read_text())["results"], asks), told)
            experiment = {"experimental_groups_defaults": {"gpus": ["gpu"], "applications_names": ["app"]}}
            strategies = [{"name": "ours", "display_name": "Ours"}]
            data = get_aggregation_data(
                Path(folder), experiment, {"gpu": {"app": statistics}}, strategies,
                {"gpu": {"app": {"ours": told}}}, 0.95, 0.01, 0.95, 1_000,
            )  # fmt: skip
            np.random.seed(seed)  # noqa: NPY002
            curves, *_ = get_strategies_aggregated_performance(list(data.values()), 0.95)
    return float(np.mean(curves[0]))


def _as_results(rows: list[dict], asks: list[list[int]]) -> list[list[dict]]:
    """What Kernel Tuner's simulation would return for these requests, in seconds and without wall clock."""

    def seconds(row: int, again: bool) -> dict:
        cached = rows[row]["times"]
        runs = {"runtimes": [t / 1000 for t in cached.get("runtimes", [])]}
        fresh = {k: 0.0 if again else cached[k] / 1000 for k in ("compilation", "validation")}
        return {**rows[row], "times": {**runs, **fresh, "framework": 0.0, "search_algorithm": 0.0}}

    runs = []
    for requests in asks:
        seen: set[int] = set()
        results = []
        for row in requests:
            results.append(seconds(row, row in seen))
            seen.add(row)
        runs.append(results)
    return runs


@pytest.mark.parametrize(
    ("space", "evaluations", "end"),
    [
        ("convolution_milo/MI250X", (2, 51), 83), ("convolution_milo/A6000", (2, 388), 1110),
        ("convolution_milo/W6600", (2, 8), 22), ("dedispersion_milo/A4000", (2, 265), 1666),
    ],
)  # fmt: skip
def test_the_time_axes_of_the_real_spaces_are_the_published_ones(
    shared_dir: Path, space: str, evaluations: tuple[int, int], end: float
) -> None:
    pytest.importorskip("scipy", reason="`atm` needs scipy (extra report)")
    ax = atm.axis(load(shared_dir / "spaces" / "cachefiles" / f"{space}.json.gz"))
    assert ax.evaluations == evaluations
    assert ax.grid[-1] == pytest.approx(end, abs=0.6)


def test_a_run_ends_where_its_score_cannot_change() -> None:
    """Cutting a run's revisits once the score's clock is far past the axis leaves P as it is (to the margin's fourth digit)."""
    pytest.importorskip("sklearn", reason="`atm` needs scikit-learn (extra report)")
    ax = atm.axis(load(DATA / "minimised.json.gz"))

    def stubborn(func, searchspace):
        for configuration in searchspace.get_random_sample(30):
            func(configuration)
        while True:
            func(searchspace.list[0])

    p = []
    for session in (ax.session, lambda: Session(ax.recording, ax.limits(), costs=ax.budget_costs, overrun=True)):
        traces = [replay(stubborn, ax.recording, seed=s, session=session()) for s in range(30)]
        p.append(atm.performance(traces, ax).mean())
        calls = np.mean([t.calls for t in traces])
        p.append(calls)
    assert p[1] < 0.5 * p[3]
    assert p[0] == pytest.approx(p[2], abs=0.05)
