"""pyATF's techniques over our spaces are pyATF's over its own; they end; ours drive pyATF's tuner."""

from __future__ import annotations

import importlib.util
import math
import random
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from evotune import adapters
from evotune.adapters import PyATFTechnique, pyatf_names
from evotune.adapters.pyatf import Tree
from evotune.optimizers import provider
from metabench.errors import UserError
from metabench.recording import Recording, save
from metabench.replay import Limits, replay
from metabench.searchspace import Searchspace
from metabench.space import Space
from metabench.testing import SPACES, OptimizerSuite
from metabench.testing import recording as invented

pyatf = pytest.importorskip("pyatf")


THEIRS = {  # one group of dependent parameters, then two; a constant; words
    "one group": (
        {"x": [1, 2, 4, 8, 16], "y": [1, 2, 3, 4, 5], "z": [0, 1, 2]},
        {"y": lambda x, y: x * y <= 20, "z": lambda z, y: z <= y - 2},
    ),
    "independent groups": (
        {
            "a": [1, 2, 3, 4],
            "b": [1, 2, 3, 4],
            "constant": [7],
            "layout": ["row", "column", "tiled"],
            "c": [1, 2, 4, 8],
            "d": [1, 2, 4, 8],
        },
        {"b": lambda a, b: a <= b, "d": lambda c, d: c * d <= 16},
    ),
}


def their_space(name: str, by_index: bool = False) -> Any:
    values, constraints = THEIRS[name]
    parameters = [pyatf.TP(key, pyatf.Set(*column), constraints.get(key)) for key, column in values.items()]
    from pyatf.search_space import SearchSpace

    return SearchSpace(*parameters, enable_1d_access=by_index, verbosity=0)


def our_space(name: str) -> Space:
    values, constraints = THEIRS[name]
    return Space.from_dict(values, list(constraints.values()))


@pytest.mark.parametrize("name", THEIRS)
def test_coordinates_lead_where_pyatf_leads(name: str) -> None:
    theirs, space = their_space(name), our_space(name)
    tree = Tree(Searchspace(space))
    assert len(space) == theirs.constrained_size and tree.dimensions == theirs.num_tps
    rng = random.Random(0)
    corners = [(end,) * tree.dimensions for end in (math.ulp(0.0), 0.5, 1.0)]
    for point in [*corners, *(tuple(1.0 - rng.random() for _ in range(tree.dimensions)) for _ in range(2_000))]:
        configuration = theirs.get_configuration(point)
        assert tree.configuration(point) == tuple(configuration[n] for n in space.names)


@pytest.mark.parametrize(
    ("name", "technique", "evaluations"),
    [
        ("pyatf_de", "differential_evolution", 25),
        ("pyatf_simulated_annealing", "simulated_annealing", 25),
        ("pyatf_round_robin", "round_robin", 25),
        ("pyatf_torczon", "torczon", 3),  # with more, Kernel Tuner's does not come back: it has converged
    ],
)
def test_the_run_is_that_of_kernel_tuners_strategy_once_this_is_mended(
    name: str, technique: str, evaluations: int, recording: Recording, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kernel Tuner's `pyatf_strategies` with a `TP` that takes the surplus argument: the same configurations, in order."""
    kernel_tuner = pytest.importorskip("kernel_tuner")
    plain = pyatf.TP
    monkeypatch.setattr(pyatf, "TP", lambda name, values, constraint, source: plain(name, values, constraint))
    monkeypatch.chdir(tmp_path)  # it makes a folder where it stands
    cache = save(recording, tmp_path / "c.json")
    random.seed(4)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        results, _ = kernel_tuner.tune_kernel(
            "synthetic", "extern \"C\" float synthetic() { return 0; }", 64, [], recording.space.tune_params,
            restrictions=["x * y <= 512", "unroll <= y"], strategy="pyatf_strategies", lang="C", simulation_mode=True,
            strategy_options={"searchtechnique": technique, "max_fevals": evaluations}, cache=str(cache),
            quiet=True, verbose=False,
        )  # fmt: skip
    theirs = list(dict.fromkeys(tuple(r[n] for n in recording.space.names) for r in results))
    trace = replay(PyATFTechnique(name, restart=False), recording, Limits(evaluations=evaluations), seed=4)
    ours = [recording.space[row] for row in trace.rows.tolist()]
    assert len(theirs) >= 3
    assert ours[: len(theirs)] == theirs[: len(ours)]


@pytest.mark.parametrize("name", ["pyatf_de", "pyatf_pattern_search", "pyatf_torczon"])
def test_one_that_has_converged_is_started_again_or_ends(name: str) -> None:
    recording = invented(SPACES["a few hundred"])
    calls = 10**7
    alone = replay(PyATFTechnique(name, restart=False), recording, Limits(calls=calls), 0)
    again = replay(PyATFTechnique(name), recording, Limits(calls=calls), 0)
    assert alone.ended == "returned" and alone.calls < 100_000
    assert len(again.rows) > 0.8 * len(recording.space) > len(alone.rows)


@pytest.mark.parametrize("name", ["pyatf_auc_bandit", "pyatf_round_robin"])
def test_the_mixed_ones_share_nothing_and_take_options(name: str) -> None:
    recording = invented(SPACES["holes"])
    alone = replay(PyATFTechnique(name), recording, Limits(evaluations=30), 1)
    between = PyATFTechnique(name)

    def interleaved(func: Any, searchspace: Any) -> Any:
        """Another run of the same technique in the middle of this one, on generators of its own."""
        state, asked = random.getstate(), 0

        def ask(configuration: Any) -> float:
            nonlocal asked, state
            asked += 1
            if asked == 10:
                kept = random.getstate()
                replay(PyATFTechnique(name), recording, Limits(evaluations=20), 9)
                random.setstate(kept)
            return func(configuration)

        return between(ask, searchspace)

    assert replay(interleaved, recording, Limits(evaluations=30), 1).rows.tolist() == alone.rows.tolist()
    only_random = replay(PyATFTechnique(name, techniques=["pyatf_random"]), recording, Limits(evaluations=30), 1)
    assert only_random.rows.tolist() != alone.rows.tolist()


def test_what_is_wrong_is_told() -> None:
    with pytest.raises(UserError, match="pyatf_de has no option popsize; it has none but restart"):
        PyATFTechnique("pyatf_de", popsize=3)
    with pytest.raises(UserError, match="it has c, techniques, window_size"):
        PyATFTechnique("pyatf_auc_bandit", C=1)
    with pytest.raises(UserError, match="needs at least one technique"):
        PyATFTechnique("pyatf_round_robin", techniques=[])
    with pytest.raises(UserError, match="unknown technique to make pyatf_round_robin of 'pyatf_round_robin'"):
        PyATFTechnique("pyatf_round_robin", techniques=["pyatf_round_robin"])
    with pytest.raises(UserError, match="Did you mean 'pyatf_de'"):
        provider.make("pyatf_da")


def test_names_are_listed_only_where_pyatf_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    assert set(pyatf_names()) < set(provider.names())
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *a: None if name == "pyatf" else find(name, *a))
    assert pyatf_names() == [] and not any(name.startswith("pyatf") for name in provider.names())
    with pytest.raises(UserError, match=r"pip install 'metaopt-toolkit\[pyatf\]'"):
        adapters.make("pyatf_de")


class TestDifferentialEvolution(OptimizerSuite):
    def make(self) -> Any:
        return PyATFTechnique("pyatf_de")


class TestTorczon(OptimizerSuite):
    def make(self) -> Any:
        return PyATFTechnique("pyatf_torczon")


class TestRoundRobin(OptimizerSuite):
    def make(self) -> Any:
        return PyATFTechnique("pyatf_round_robin")


# -- ours as a technique of theirs ------------------------------------------------------------------------------------


def tuned(technique: Any, search_space: Any, evaluations: int) -> tuple[Any, float, list[Any]]:
    from pyatf.abort_conditions import Evaluations

    asked: list[Any] = []

    def cost(configuration: dict[str, Any]) -> float:
        asked.append(tuple(configuration.values()))
        if configuration["x"] == 16:
            raise CostFunctionError("it failed")
        return (configuration["x"] - 4) ** 2 + (configuration["y"] - 3) ** 2 + configuration["z"]

    from pyatf.tuning_data import CostFunctionError

    tuner = pyatf.Tuner().search_space(search_space).search_technique(technique).verbosity(0)
    best, least, _ = tuner.tune(cost, Evaluations(evaluations))
    return best, least, asked


@pytest.mark.parametrize("optimizer", ["random_search", "gp_general", "genetic_algorithm"])
def test_an_optimizer_of_ours_drives_pyatfs_tuner(optimizer: str) -> None:
    from evotune.adapters.as_technique import OptimizerTechnique

    space = their_space("one group", by_index=True)
    best, least, asked = tuned(OptimizerTechnique(optimizer, space, evaluations=30, seed=0), space, 30)
    assert len(asked) == len(set(asked)) == 30 or len(set(asked)) == space.constrained_size
    assert (best["x"] - 4) ** 2 + (best["y"] - 3) ** 2 + best["z"] == least < 2


def test_pyatf_goes_on_after_the_optimizer_has_ended() -> None:
    from evotune.adapters.as_technique import OptimizerTechnique

    space = their_space("one group", by_index=True)

    def twice_the_first(func: Any, searchspace: Any) -> None:
        assert func((1, 5, 2)) == func([1.0, 5, 2]) == 15.0
        assert func((3, 3, 3)) == math.inf  # no configuration: never asked of pyATF
        assert func.budget_spent_fraction == pytest.approx(1 / space.constrained_size)

    _, _, asked = tuned(OptimizerTechnique(twice_the_first, space), space, space.constrained_size)
    assert asked[0] == (1, 5, 2) and len(set(asked)) == space.constrained_size


def test_the_optimizers_thread_ends_and_its_errors_are_raised() -> None:
    import threading

    from evotune.adapters.as_technique import OptimizerTechnique

    space = their_space("one group", by_index=True)

    def for_ever(func: Any, searchspace: Any) -> None:
        while True:
            func(searchspace.list[0])

    def breaks(func: Any, searchspace: Any) -> None:
        func(searchspace.list[0])
        raise ZeroDivisionError("here")

    tuned(OptimizerTechnique(for_ever, space), space, 4)
    with pytest.raises(ZeroDivisionError, match="here"):
        tuned(OptimizerTechnique(breaks, space), space, 4)
    tuned(OptimizerTechnique("random_search", space), space, 2)
    assert not [t for t in threading.enumerate() if t.name == "optimizer"]
    with pytest.raises(UserError, match="enable_1d_access=True"):
        OptimizerTechnique("random_search", their_space("one group"))


def test_costs_that_are_not_finite_are_failures() -> None:
    recording = invented(SPACES["a few hundred"], failing=0.5)
    for name in pyatf_names():
        trace = replay(_told(PyATFTechnique(name)), recording, Limits(evaluations=60), 2)
        assert not trace.error and len(trace.rows) == 60, name


def _told(optimizer: Any) -> Any:
    """An optimizer whose failures come as NaN and as Kernel Tuner's largest float."""

    def run(func: Any, searchspace: Any) -> Any:
        def ask(configuration: Any) -> float:
            cost = func(configuration)
            return cost if cost < math.inf else random.choice([math.nan, np.finfo(float).max])

        return optimizer(ask, searchspace)

    return run
