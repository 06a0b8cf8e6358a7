"""Workers build in parallel; a kernel is timed while no other one is, and a dead worker does not keep the others waiting."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

from evotune.measure import record

TIMED = """
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <thread>
static double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }
extern "C" float timed(float *y, const float *x, int n) {
    const double start = now();
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    for (int i = 0; i < n; ++i) y[i] = 2 * x[i];
    if (P == 2) raise(SIGKILL);
    FILE *log = std::fopen(std::getenv("LOG"), "a");
    std::fprintf(log, "%.9f %.9f\\n", start, now());
    std::fclose(log);
    return 1;
}
"""


def test_runs_do_not_overlap(make_kernel, reference: str, tmp_path: Path) -> None:
    kernel = make_kernel("timed", TIMED, reference, {"P": [1, 2, 3, 4, 5]})
    log = tmp_path / "log"
    options: dict[str, Any] = {"repeats": 3, "environment": {"LOG": str(log)}}
    there = record(kernel, "native", tmp_path / "out.json", workers=3, **options)
    assert there.status.tolist() == ["correct", "runtime", "correct", "correct", "correct"]
    runs = sorted(tuple(map(float, line.split())) for line in log.read_text().splitlines())
    assert len(runs) >= 4 * 4
    assert all(end <= start for (_, end), (start, _) in itertools.pairwise(runs))
