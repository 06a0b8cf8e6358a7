"""Tuning that is killed halfway has spent hours: the best so far is on disk and loads."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import jsonschema
import pytest

from evotune.measure import tuned
from metabench.kernel import Kernel, cpu_device

SCRIPT = """
import sys; sys.modules["torch"] = None  # not needed, and slow to import
from pathlib import Path
from evotune.measure import tune
from metabench.kernel import Kernel
kernel = Kernel("faulty", Path({kernel!r}))
found = tune(kernel, "random_sample", evaluations=40, repeats=2, folder={folder!r}, progress=lambda n, *_: print(n, flush=True))
print(found.ended, found.evaluations, found.time)
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_the_best_so_far_loads(number: signal.Signals, faulty: Callable[..., Kernel], tmp_path: Path) -> None:
    kernel, out = faulty([0], list(range(1, 41))), tmp_path / "out"
    script = SCRIPT.format(kernel=str(kernel.folder), folder=str(out))
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    environment = {**os.environ, "TMPDIR": str(temporary)}
    process = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, env=environment)
    assert process.stdout is not None
    for line in process.stdout:
        if line.strip() == "5":
            process.send_signal(number)
            break
    assert list(temporary.iterdir())
    last = process.communicate(timeout=30)[0].strip().splitlines()
    entry = tuned.read(out / "tuned" / f"{cpu_device(['-O0', '-march=native'])}.json")[0]
    assert entry["kernel"] == "faulty"
    assert entry["configuration"]["UNROLL"] >= 1
    assert 0 < entry["time_ms"] <= entry["default_time_ms"]
    deadline = time.monotonic() + 20
    while list(temporary.iterdir()) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not list(temporary.iterdir())
    if number == signal.SIGKILL:  # no time for anything: the best is there, the list of all evaluations is not
        return
    assert process.returncode == 0
    assert last[-1].split()[0] == "interrupted"
    t4 = json.loads((out / "t4.json").read_text())
    assert 5 <= len(t4["results"]) == entry["evaluations"] < 40
    from kernel_tuner.file_utils import output_file_schema

    jsonschema.validate(t4, output_file_schema("results")[1])
