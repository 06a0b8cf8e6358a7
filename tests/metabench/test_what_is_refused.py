"""What metabench cannot take is one sentence that says what was wrong; what a disk or an old file does to it is survived."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from metabench import Recording, Searchspace, Space, UserError, atm, baseline, load
from metabench.details import Details
from metabench.expression import NotVectorizable, constant, evaluate_columns, parse
from metabench.files import write_atomic
from metabench.formats import compact
from metabench.kernel import Kernel
from metabench.replay import Limits, Session
from metabench.score import score
from metabench.timing import interleaved

Of = Callable[..., Recording]
LINE = Space.from_dict({"x": list(range(8))})


def with_details(values: list[float], maximize: bool = False) -> Recording:
    """A recording of milliseconds, or of speeds, that `atm` can score: every evaluation takes a second."""
    n = len(values)
    details = Details.of([{"compile": 1000.0}] * n, [[1.0]] * n, [None] * n, [{}] * n)
    told = (np.array(values), np.ones(n), np.full(n, "correct"))
    return Recording("toy", "bench", Space.from_dict({"x": list(range(n))}), *told, maximize=maximize, details=details)


@pytest.mark.parametrize(
    ("values", "costs", "message"),
    [
        ([1.0] * 7, None, "toy/bench: 7 values for 8 configurations"),
        ([np.nan] * 8, None, "no configuration was measured successfully"),
        (None, [1.0] * 7 + [0.0], r"configuration \(7,\) has no positive cost, but 0.0"),
        (None, [np.inf] + [1.0] * 7, r"configuration \(0,\) has no positive cost, but inf"),
    ],
)
def test_a_recording_is_whole(recording_of: Of, values: Any, costs: Any, message: str) -> None:
    with pytest.raises(UserError, match=message):
        recording_of(LINE, values, costs)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Space.from_configurations(["x", "y"], []), "a space of x, y was given no configuration"),
        (lambda: Space.from_dict({f"p{i}": list(range(16)) for i in range(16)}), r"2\*\*62 configurations or more"),
        (lambda: Space.from_t1(t1("7")), "T1 values must be a list, not '7'"),
        (lambda: Space.from_t1(t1("[1, n]")), r"'\[1, n\]' reads unknown names: n"),
        (lambda: Space.from_t1(t1("[1, 1]")), "the T1 definition: parameter 'x' has a value twice"),
        (
            lambda: Space.from_dict({"x": [1]}, [lambda x, y: True]),
            "takes x, y; it must take one dict, or parameters by name",
        ),
        (
            lambda: Searchspace(LINE).get_random_sample_indices(9),
            "a sample of 9 was asked of a space of 8 configurations",
        ),
        (lambda: interleaved({}), "timing needs at least one candidate and one round"),
        (lambda: constant("[1 for x in y]"), "reads unknown names: y"),
    ],
)
def test_spaces_and_what_is_asked_of_them(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        make()


def t1(values: str) -> dict[str, Any]:
    return {"ConfigurationSpace": {"TuningParameters": [{"Name": "x", "Values": values}]}}


def test_values_that_have_no_order_get_one() -> None:
    space = Space.from_configurations(["x"], [("b",), (2,), ("a",), (1,)])
    assert space.configurations == [(1,), (2,), ("a",), ("b",)]


def test_numbers_that_could_overflow_are_left_to_python() -> None:
    large = {"x": np.array([2**40, 1])}
    with pytest.raises(NotVectorizable, match="overflow"):
        evaluate_columns(parse("x * x > 1"), large)
    assert len(Space.from_dict({"x": [2**40, 1]}, ["x * x * x > 2**100"])) == 1


def small(configuration: dict[str, Any]) -> bool:
    return configuration["x"] < 4


def not_two(x: int) -> bool:
    return x != 2


def test_restrictions_of_every_kind_come_through_a_pickle() -> None:
    space = Space.from_dict({"x": list(range(8))}, [small, not_two, "x % 2 == 0"])
    again = pickle.loads(pickle.dumps(space))
    assert [r.row({"x": 5}) for r in again.restrictions] == [False, True, False]
    assert again.configurations == space.configurations == [(0,)]


def test_a_kernel_says_what_it_lacks(tmp_path: Path) -> None:
    (tmp_path / "k.cl").write_text("")
    kernel = Kernel("k", tmp_path)
    with pytest.raises(UserError, match=r"kernel 'k' has no k.cpp; it has: k.cl"):
        kernel.source(".cpp")
    with pytest.raises(UserError, match=r"kernel 'k' has no reference.py"):
        kernel.reference()
    with pytest.raises(UserError, match="it has: no source"):
        Kernel("other", tmp_path).source(".cpp")


def test_scoring_needs_recordings_of_different_names(recording_of: Of) -> None:
    one = recording_of(LINE)
    with pytest.raises(UserError, match="two recordings have the same name: toy/bench, toy/bench"):
        score({"it": lambda: None}, [one, one])  # type: ignore[dict-item,return-value]
    for wrong in ({"repeats": 0}, {"workers": 0}, {"estimators": ()}):
        with pytest.raises(
            UserError, match="scoring needs at least one optimizer, recording, repeat, estimator and worker"
        ):
            score({"it": lambda: None}, [one], **wrong)  # type: ignore[dict-item,return-value,arg-type]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([1.0] * 8, "every valid configuration is optimal"),
        ([0.0] + [1.0] * 7, "random search is at the optimum so soon that `atm` has no time axis"),
    ],
)
def test_what_atm_cannot_score(values: list[float], message: str) -> None:
    with pytest.raises(UserError, match=message):
        atm.axis(with_details(values))


def test_atm_needs_cost_parts_and_every_request(recording_of: Of) -> None:
    with pytest.raises(UserError, match="toy/bench does not say what its costs are made of"):
        atm.axis(recording_of(LINE))
    easy = with_details(np.geomspace(1, 9, 400).tolist())
    session = Session(easy, Limits(evaluations=3))
    session.ask((1,))
    with pytest.raises(UserError, match="the trace of 'it' keeps no revisits"):
        atm.run_points(session.trace("it"), atm.axis(easy))


def test_runs_without_a_valid_configuration_have_no_score_under_atm() -> None:
    easy = with_details([*np.geomspace(1, 9, 400).tolist(), np.nan])
    axis = atm.axis(easy)
    session = axis.session()
    session.ask((400,))
    with pytest.raises(atm.NotScorable, match="a run found no valid configuration"):
        atm.performance([session.trace("it")], axis)


def test_a_disk_that_takes_nothing_is_survived(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, recording_of: Of, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "cache").write_text("a file where the folder should be")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert baseline.baseline(recording_of(LINE)).optimum == 1.0
    entries = {str(x): {"x": x, "time": 1.0 + x, "compile_time": 5.0} for x in range(3)}
    (tmp_path / "r.json").write_text(json.dumps({"tune_params_keys": ["x"], "cache": entries}))
    with caplog.at_level("INFO"):
        assert load(tmp_path / "r.json").optimum == 1.0
    assert "no compact form kept" in caplog.text


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_atomic(tmp_path / "a.txt", "old")
    monkeypatch.setattr("os.fsync", lambda _: (_ for _ in ()).throw(OSError("full")))
    with pytest.raises(OSError, match="full"):
        write_atomic(path, "new")
    assert path.read_text() == "old" and list(tmp_path.iterdir()) == [path]


def test_old_files_and_their_failures(tmp_path: Path) -> None:
    """1e20 is how old Kernel Tuner versions wrote a failure; NaN is how nobody should."""
    entries = {str(x): {"x": x, "time": t, "compile_time": 5.0} for x, t in enumerate([1.0, 1e20, np.nan, 2.0])}
    (tmp_path / "r.json").write_text(json.dumps({"tune_params_keys": ["x"], "cache": entries}))
    found = load(tmp_path / "r.json")
    assert found.status.tolist() == ["correct", "runtime", "runtime", "correct"] and found.failures == 2
    with pytest.raises(UserError, match=r"entry '3': configuration \(3,\) is not in the space it is read for"):
        load(tmp_path / "r.json", Space.from_dict({"x": [0, 1, 2]}))
    with pytest.raises(UserError, match=r"gone.json cannot be read"):
        load(tmp_path / "gone.json")


def test_only_what_was_read_from_a_file_has_a_compact_form(recording_of: Of) -> None:
    with pytest.raises(ValueError, match="toy/bench has no details; only recordings read from a file"):
        compact.pack(recording_of(LINE))
