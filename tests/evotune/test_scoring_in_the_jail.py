"""A file that nobody vouches for is scored in the jail: the scores of this process, and a failure is a result with a reason."""

from __future__ import annotations

import csv
import pickle
from pathlib import Path

import numpy as np
import pytest

from evotune.jail import JailLimits
from evotune.jailed import JailedFile
from evotune.optimizers import provider
from metabench import catalog, results, summary
from metabench.errors import UserError
from metabench.recording import Recording
from metabench.score import score

pytest.importorskip("sklearn", reason="`atm` needs scikit-learn (extra report)")

LIMITS = JailLimits(cpu_seconds=1, wall_seconds=2)
CLIMB = """
import random
class Climb:
    def __call__(self, func, searchspace):
        while True:
            here = searchspace.get_random_sample(1)[0]
            value = func(here)
            for step in random.sample(searchspace.get_neighbors(here), 3):
                if (found := func(step)) < value:
                    here, value = step, found
PROVENANCE = {"spaces": ["convolution"]}
"""
BROKEN = {
    "timeout": "class X:\n    def __call__(self, func, searchspace):\n        while True:\n            pass\n",
    "forbidden": "import os\nclass X:\n    def __call__(self, func, searchspace):\n        os.abort()\n",
    "crash": "class X:\n    def __call__(self, func, searchspace):\n        func.tuning_options.cache\n",
    "no-evaluation": "class X:\n    def __call__(self, func, searchspace):\n        pass\n",
}


def write(folder: Path, name: str, source: str) -> str:
    path = folder / f"{name}.py"
    path.write_text(source)
    return str(path)


def test_the_scores_are_those_of_this_process(tmp_path: Path) -> None:
    path, spaces = write(tmp_path, "climb", CLIMB), catalog.select("convolution")
    both = ("direct", "atm")
    there = score({"climb": JailedFile(path)}, spaces, 3, 7, estimators=both)
    here = score({"climb": provider.make(path)}, spaces, 3, 7, estimators=both)
    np.testing.assert_array_equal(there.p, here.p)
    for name in there.recordings:
        np.testing.assert_array_equal(there.results["climb", name].atm_curve, here.results["climb", name].atm_curve)
    assert there.seen == here.seen == {("climb", name) for name in there.recordings}


def test_processes_change_nothing(two_recordings: list[Recording], tmp_path: Path) -> None:
    jailed = JailedFile(write(tmp_path, "climb", CLIMB))
    assert pickle.loads(pickle.dumps(jailed)) == jailed
    one, two = (score({"climb": jailed}, two_recordings, 2, workers=w) for w in (1, 2))
    np.testing.assert_array_equal(one.p, two.p)


def test_a_failure_is_a_reason_in_table_and_csv_and_the_others_are_scored(recording: Recording, tmp_path: Path) -> None:
    optimizers = {kind: JailedFile(write(tmp_path, kind, source), LIMITS) for kind, source in BROKEN.items()}
    scores = score({"climb": JailedFile(write(tmp_path, "climb", CLIMB)), **optimizers}, [recording], 2)
    text = summary.summary(scores)
    with results.write_csv(results.score_rows(scores), tmp_path / "scores.csv").open() as file:
        told = {row["optimizer"]: (row["P_direct"], row["failure"]) for row in csv.DictReader(file)}
    assert told.pop("climb")[1] == ""
    assert all(p == "" and failure.startswith(f"{kind}: ") for kind, (p, failure) in told.items()) and len(told) == 4
    assert all(kind in text for kind in BROKEN) and "line 3: func.tuning_options.cache" in text.replace("  ", " ")
    assert scores.complete().optimizers == ["climb"] and np.isfinite(scores.mean("climb").mean)


def test_it_never_runs_in_this_process(tmp_path: Path) -> None:
    path = write(tmp_path, "loud", "raise SystemExit('it ran')\n" + CLIMB)
    jailed = JailedFile(path)
    assert jailed.provenance == {"spaces": ["convolution"]}
    with pytest.raises(TypeError, match="runs in the jail only"):
        jailed()
    assert JailedFile(write(tmp_path, "none", "PROVENANCE = open('/etc/passwd')")).provenance == {}
    with pytest.raises(UserError, match="there is no file"):
        JailedFile(str(tmp_path / "gone.py"))
