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


HARNESS = f"""
import os, random, signal, sys, time
from pathlib import Path
from evotune.evolve import evolve
from evotune.generators.components import ComponentsGenerator
from metabench.recording import load

recording, folder = load(sys.argv[1]), Path(sys.argv[2])

def run(number):
    out = folder / str(number)
    evolve(ComponentsGenerator(7), [recording], out, seed=7, resume=(out / "archive.sqlite").exists(), **{SETTINGS!r})

kills, number, rng = 0, 0, random.Random(0)
while kills < 20:
    child = os.fork()
    if child == 0:
        run(number)
        os._exit(0)
    time.sleep(rng.uniform(0.0, 1.5))
    done, status = os.waitpid(child, os.WNOHANG)
    if done:
        assert status == 0, status
        number += 1
        continue
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    kills += 1
run(number)
"""


@pytest.mark.slow
def test_killed_at_twenty_random_moments_it_ends_with_the_archive_of_an_unbroken_run(
    recording: Recording, tmp_path: Path
) -> None:
    """Each run is killed and taken up until it is complete, then comes the next, until twenty kills were made."""
    path = save(recording, tmp_path / "one.json")
    subprocess.run([sys.executable, "-c", HARNESS, str(path), str(tmp_path / "runs")], check=True, timeout=300)
    whole = evolve(ComponentsGenerator(7), [load(path)], tmp_path / "whole", seed=7, **SETTINGS)
    runs = list((tmp_path / "runs").glob("*/archive.sqlite"))
    assert runs
    with Archive.open(whole.archive) as unbroken:
        rows = list(unbroken.without_times())
    for run in runs:
        with Archive.open(run) as broken:
            assert list(broken.without_times()) == rows, run


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
