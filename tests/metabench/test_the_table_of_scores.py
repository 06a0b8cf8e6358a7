"""The table says the same however it was computed, and says what it does not know: estimators, seen spaces, significance."""

from __future__ import annotations

import csv
import itertools
import pickle
import random
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest

from metabench import Recording, UserError, bootstrap, load, plots, registry, results, score, summary
from metabench.replay import Limits, Session

DATA = Path(__file__).resolve().parent / "data"
pytest.importorskip("sklearn", reason="`atm` needs scikit-learn (extra report)")


class Shuffle:
    """Random search; a class of a module, so that it can go to another process."""

    def __call__(self, func, searchspace) -> None:
        for configuration in searchspace.get_random_sample(searchspace.size):
            func(configuration)


class Climb:
    provenance: ClassVar = {"spaces": ["data/minimised"]}

    def __call__(self, func, searchspace) -> None:
        while True:
            here = searchspace.get_random_sample(1)[0]
            value = func(here)
            for step in random.sample(searchspace.get_neighbors(here), 12):
                if (found := func(step)) < value:
                    here, value = step, found


@pytest.fixture(scope="module")
def spaces() -> list[Recording]:
    return [load(DATA / "minimised.json.gz"), load(DATA / "maximised.json.gz")]


@pytest.fixture(scope="module")
def scores(spaces):
    return score({"shuffle": Shuffle, "climb": Climb}, spaces, repeats=6, seed=3, estimators=("direct", "atm"))


def test_processes_change_nothing(spaces, scores) -> None:
    again = score({"shuffle": Shuffle, "climb": Climb}, spaces, 6, 3, estimators=("direct", "atm"), workers=2)
    np.testing.assert_array_equal(scores.p, again.p)
    for one, other in itertools.product(scores.optimizers, scores.recordings):
        np.testing.assert_array_equal(scores.results[one, other].atm_curve, again.results[one, other].atm_curve)


def test_a_named_optimizer_with_options_goes_to_processes(spaces, monkeypatch: pytest.MonkeyPatch) -> None:
    class Provider:
        def names(self) -> list[str]:
            return ["short"]

        def make(self, name: str, **options: int):
            return type("Short", (Shuffle,), {"provenance": {"spaces": ["data"]}, **options})

    monkeypatch.setattr(registry, "providers", lambda: [Provider()])
    named = registry.Named("short", (("left", 3),))
    assert named.label == "short(left=3)"
    assert pickle.loads(pickle.dumps(named)) == named
    assert named().left == 3
    assert score({named.label: named}, spaces[:1], 2).seen == {("short(left=3)", "data/minimised")}
    with pytest.raises(UserError, match="unknown optimizer 'shrot'; allowed: short"):
        score({"it": "shrot"}, spaces[:1], 2)


def test_what_cannot_be_sent_to_a_process_is_said_before_anything_runs(spaces) -> None:
    with pytest.raises(UserError, match="optimizer 'lambda' cannot be sent to another process"):
        score({"lambda": lambda: Shuffle()}, spaces, 2, workers=2)


def test_a_space_that_an_optimizer_was_evolved_on_is_marked(scores) -> None:
    assert scores.seen == {("climb", "data/minimised")}
    assert "* seen" in summary.summary(scores)


def test_the_csv_has_the_promised_columns(scores, tmp_path: Path) -> None:
    rows = results.score_rows(scores)
    written = results.write_table(rows, tmp_path / "scores")
    with written[0].open() as file:
        read = list(csv.DictReader(file))
    estimates = [f"P_{estimator}{end}" for estimator in ("direct", "atm") for end in ("", "_low", "_high")]
    promised = ["optimizer", "space", "repeats", "seed", *estimates, "overhead_ms", "found_optimum"]
    assert list(read[0])[:12] == promised
    for row in read:
        for estimator in ("direct", "atm"):
            low, p, high = (float(row[f"P_{estimator}{end}"]) for end in ("_low", "", "_high"))
            assert low <= p <= high


def test_means_can_leave_a_noisy_space_out(scores) -> None:
    assert scores.mean("climb", ["data/minimised"]).mean == scores.on("climb", "data/maximised").mean
    assert scores.mean("climb", ["data/minimised"], "atm").mean == scores.on("climb", "data/maximised", "atm").mean
    assert "direct without data/minimised" in summary.summary(scores, ["data/minimised", "elsewhere/unknown"])


def test_runs_that_atm_cannot_score_are_said_and_do_not_end_the_rest(spaces) -> None:
    def once(func, searchspace):
        func(searchspace.list[0])

    found = score({"once": lambda: once}, spaces[:1], 2, estimators=("direct", "atm"))
    assert np.isnan(found.on("once", "data/minimised", "atm").mean)
    assert results.score_rows(found)[0]["P_atm"] is None
    assert "fewer than 2 points on the time axis" in summary.summary(found)


def test_an_estimator_that_was_not_asked_for_is_named(scores, spaces) -> None:
    only = score({"shuffle": Shuffle}, spaces[:1], 2)
    with pytest.raises(UserError, match="unknown estimator of these scores 'atm'; allowed: direct"):
        only.on("shuffle", "data/minimised", "atm")


def test_optimizers_that_are_the_same_are_not_found_to_differ() -> None:
    """Holm over ten pairs of five equal optimizers, three heavy-tailed repeats: a false finding in one table of twenty."""
    rng = np.random.default_rng(0)
    names = [f"o{i}" for i in range(5)]
    found = 0
    for _ in range(40):
        runs = {name: list(-rng.lognormal(0, 1, (4, 3))) for name in names}
        compared = bootstrap.compare(runs, list(itertools.combinations(names, 2)))
        found += any(c.significant for c in compared)
    assert found <= 6


def test_a_clear_difference_is_found() -> None:
    rng = np.random.default_rng(0)
    runs = {"better": [rng.normal(0.5, 0.3, 30)] * 2, "worse": [rng.normal(0, 0.3, 30)] * 2}
    (compared,) = bootstrap.compare(runs, [("better", "worse")])
    assert compared.significant
    assert compared.difference.low > 0


def test_holm_by_hand() -> None:
    np.testing.assert_allclose(bootstrap.holm(np.array([0.01, 0.04, 0.03])), [0.03, 0.06, 0.06])


def test_cpu_time_counts_only_when_asked_for(twelve_points: Recording) -> None:
    def thinks(session: Session) -> float:
        for row in range(3):
            sum(range(200_000))
            session.ask(twelve_points.space[row])
        return session.times[-1]

    assert thinks(Session(twelve_points, Limits(seconds=50))) == 3.0
    assert 3.0 < thinks(Session(twelve_points, Limits(seconds=50), cpu=True)) < 4.0


def test_every_figure_is_png_svg_and_csv(scores, spaces, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="figures need matplotlib (extra report)")
    written = plots.draw_all(scores, tmp_path, spaces)
    stems = {p.relative_to(tmp_path).with_suffix("").as_posix() for p in written}
    per_space = {f"performance/data_{name}" for name in ("minimised", "maximised")}
    assert stems == {"performance_over_time", "heatmap", "boxes", "distributions"} | per_space
    assert len(written) == 3 * len(stems)
    assert all(p.stat().st_size > 50 for p in written)


def test_the_figures_csv_holds_what_it_shows(scores, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="figures need matplotlib (extra report)")
    *_, path = plots.heatmap(scores, tmp_path / "heatmap")
    with path.open() as file:
        p = {(r["optimizer"], r["kernel"], r["device"]): float(r["P"]) for r in csv.DictReader(file)}
    assert p["climb", "data", "maximised"] == pytest.approx(scores.on("climb", "data/maximised").mean)


def test_traces_are_kept_run_by_run(scores, tmp_path: Path) -> None:
    with np.load(results.write_traces(scores, tmp_path / "traces.npz")) as kept:
        i, j, run = kept["direct_index"].T
        chosen = (i == 1) & (j == 0) & (run == 4)
        trace = scores.traces["climb", "data/minimised"][4]
        assert kept["direct_row"][chosen].tolist() == trace.rows.tolist()
        assert kept["direct_seconds"][chosen].tolist() == trace.times.tolist()
        assert len(kept["atm_row"]) == sum(len(t.asks) for r in scores.results.values() for t in r.atm_traces)
