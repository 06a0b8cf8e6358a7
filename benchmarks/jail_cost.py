"""What the jail costs: microseconds an evaluation beyond those in this process, and seconds to start a candidate.

    python benchmarks/jail_cost.py

Per evaluation: one program asks for every configuration of a recording, once in this process and once in the jail, in turns.
The difference is given in wall clock and in CPU time (of this process and of the candidate's): wall clock is what a run waits,
CPU time is what a machine with neighbours does not disturb. Start-up: a program that asks twice, on a warm server, and on a new
one.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from evotune.jail import Jail, Outcome
from metabench import catalog, provenance
from metabench.files import write_json
from metabench.recording import Recording
from metabench.replay import Limits, replay

OUT = Path(__file__).with_suffix(".json")
ROUNDS = 15
EVERY = """
class Every:
    def __call__(self, func, searchspace):
        for _ in range({passes}):
            for config in searchspace.list:
                func(config)
"""
ONE = """
class One:
    def __call__(self, func, searchspace):
        func(searchspace.list[0])
        func(searchspace.list[1])
"""


def main() -> None:
    """Both measurements, on the largest bundled recording."""
    recording = max(catalog.select("all"), key=lambda r: len(r.space))
    report = {
        "command": "python benchmarks/jail_cost.py",
        "recording": recording.name,
        "rounds": ROUNDS,
        "evaluation": evaluation(recording),
        "start": start(recording),
        "provenance": provenance.stamp(),
    }
    write_json(OUT, report)
    print(report)


def evaluation(recording: Recording) -> dict[str, Any]:
    """Microseconds of an evaluation, here and in the jail; medians of rounds that took turns."""
    source = EVERY.format(passes=5)
    namespace: dict[str, Any] = {}
    exec(source, namespace)
    calls = 5 * len(recording.space)
    here, there = [], []
    with Jail() as jail:
        jail.run(source, "Every", recording, Limits(), 0)
        for _ in range(ROUNDS):
            here.append(timed(lambda: replay(namespace["Every"](), recording, Limits(), 0)))
            there.append(timed(lambda: jail.run(source, "Every", recording, Limits(), 0)))
    names = ("wall_us", "cpu_us")
    told: dict[str, Any] = {"evaluations": calls}
    for place, rounds in (("here", here), ("jail", there)):
        told[place] = {n: 1e6 * statistics.median(r[i] for r in rounds) / calls for i, n in enumerate(names)}
    told["cost"] = {
        n: 1e6 * statistics.median(t[i] - h[i] for h, t in zip(here, there, strict=True)) / calls
        for i, n in enumerate(names)
    }
    return told


def start(recording: Recording) -> dict[str, Any]:
    """Seconds of a run that asks twice: the first of a new server, and of a warm one."""
    cold, warm = [], []
    for _ in range(5):
        with Jail() as jail:
            cold.append(timed(lambda jail=jail: jail.run(ONE, "One", recording, Limits(), 0))[0])  # type: ignore[misc]
            warm += [timed(lambda jail=jail: jail.run(ONE, "One", recording, Limits(), 0))[0] for _ in range(ROUNDS)]  # type: ignore[misc]
    return {
        "cold_s": statistics.median(cold),
        "warm_s": statistics.median(warm),
        "warm_s_90th_percentile": sorted(warm)[int(0.9 * len(warm))],
    }


def timed(run: Callable[[], Any]) -> tuple[float, float]:
    """(wall, CPU) seconds; a candidate's CPU time included."""
    wall, cpu = time.perf_counter(), time.process_time()
    done = run()
    own = time.process_time() - cpu
    return time.perf_counter() - wall, own + (done.cpu_seconds if isinstance(done, Outcome) else 0.0)


if __name__ == "__main__":
    main()
