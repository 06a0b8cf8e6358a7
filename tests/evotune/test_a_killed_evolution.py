"""SIGKILL in the middle of a run: nothing paid for is lost, no process or folder stays, and the run ends as if unbroken."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from evotune.archive import Archive
from evotune.evolve import evolve
from evotune.generators.components import ComponentsGenerator
from metabench.errors import UserError
from metabench.recording import Recording, load, save

SETTINGS = {"parents": 2, "offspring": 3, "calls": 8, "repeats": 2, "finalists": 1, "confirmations": 1}
SCRIPT = f"""
import sys
from evotune.evolve import evolve
from evotune.generators.components import ComponentsGenerator
from metabench.recording import load
evolve(ComponentsGenerator(7), [load(sys.argv[1])], sys.argv[2], seed=7, **{SETTINGS!r})
"""


def evaluated(archive: Path) -> int:
    """Candidates in the archive of a run that is under way."""
    try:
        with Archive.open(archive) as reader:
            return sum(c.status != "pending" for c in reader.candidates())
    except UserError:
        return 0


def serving(scratch: Path) -> list[str]:
    """Serving processes that work below a temporary folder."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and str((entry / "cwd").readlink()).startswith(str(scratch)):
                found.append(entry.name)
        except OSError:
            continue
    return found


@pytest.mark.parametrize("after", [1, 4])
def test_killed_and_taken_up(recording: Recording, tmp_path: Path, after: int) -> None:
    path = save(recording, tmp_path / "one.json")
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    environment = {**os.environ, "TMPDIR": str(scratch)}
    run = subprocess.Popen([sys.executable, "-c", SCRIPT, str(path), str(tmp_path / "run")], env=environment)
    end = time.monotonic() + 120
    while evaluated(tmp_path / "run" / "archive.sqlite") < after and time.monotonic() < end:
        time.sleep(0.02)
    run.send_signal(signal.SIGKILL)
    run.wait()
    again = load(path)
    taken_up = evolve(ComponentsGenerator(7), [again], tmp_path / "run", seed=7, resume=True, **SETTINGS)
    whole = evolve(ComponentsGenerator(7), [again], tmp_path / "whole", seed=7, **SETTINGS)
    with Archive.open(taken_up.archive) as one, Archive.open(whole.archive) as other:
        assert list(one.without_times()) == list(other.without_times())
    assert taken_up.score == whole.score
    end = time.monotonic() + 30
    while (serving(scratch) or list(scratch.iterdir())) and time.monotonic() < end:
        time.sleep(0.05)
    assert not serving(scratch) and not list(scratch.iterdir())
