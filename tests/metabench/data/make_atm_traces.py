"""Makes the recordings and traces beside this file, and what autotuning_methodology 1.1.0 says of them.

    python tests/metabench/data/make_atm_traces.py

Two invented spaces of 420 configurations (one minimised, one maximised, both with failures), and runs of four small optimizers on
them. The package has to be installed; its answers are kept in the file, so that the test also means something without it.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from metabench import Recording, Space, atm, load, replay, save
from metabench.details import Details
from metabench.files import write_json

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))


def recording(maximize: bool, failing: float, seed: int) -> Recording:
    """A space with structure, slow configurations that cost more, compile failures and wrong answers."""
    rng = np.random.default_rng(seed)
    space = Space.from_dict({"x": list(range(12)), "y": [1, 2, 4, 8, 16], "z": list(range(7))})
    n = len(space)
    centre = np.array([8, 3, 2])
    time = 1 + 0.15 * ((space.table - centre) ** 2 @ [0.3, 1.0, 0.5]) * rng.lognormal(0, 0.25, n) + 0.2 * rng.random(n)
    status = np.where(rng.random(n) < failing, rng.choice(["compile", "runtime"], n), "correct").astype("<U16")
    values = np.where(status == "correct", 100 / time if maximize else time, np.nan)
    runs = [
        None if s == "compile" else [] if s == "runtime" else (t * rng.normal(1, 0.01, 7)).tolist()
        for s, t in zip(status, time, strict=True)
    ]
    parts = [
        {"compile": c, "verification": v, "benchmark": sum(r or []) * 1.02 + 0.3, "framework": 1.5, "strategy": 0}
        for c, v, r in zip(rng.normal(80, 10, n), rng.normal(9, 1, n), runs, strict=True)
    ]
    details = Details.of(parts, runs, [None] * n, [{}] * n)
    objective = ("GFLOP/s", "GFLOP/s", True) if maximize else ("time", "ms", False)
    return Recording("invented", "bench", space, values, details.cost(), status, *objective, details=details)


def random_search(func, searchspace):
    for configuration in searchspace.get_random_sample(searchspace.size):
        func(configuration)


def climb(func, searchspace):
    """Restarted hill climbing that asks again for what it knows: many revisits."""
    while True:
        here = searchspace.get_random_sample(1)[0]
        value = func(here)
        for _ in range(25):
            step = searchspace.get_random_neighbor(here, "strictly-adjacent")
            if (found := func(step)) <= value:
                here, value = step, found


def gives_up(func, searchspace):
    """Stops after a random number of evaluations: ends early, each run elsewhere."""
    for configuration in searchspace.get_random_sample(int(np.random.randint(6, 40))):  # noqa: NPY002
        func(configuration)


def sweeps(func, searchspace):
    """Row by row from a random place, the worst corner included: starts with failures now and then."""
    start = int(np.random.randint(searchspace.size))  # noqa: NPY002
    for i in range(searchspace.size):
        func(searchspace.list[(start + i) % searchspace.size])


CASES = [
    ("minimised", random_search, 3), ("minimised", climb, 50), ("minimised", gives_up, 50), ("minimised", sweeps, 3),
    ("maximised", climb, 3), ("maximised", random_search, 50), ("maximised", gives_up, 3),
]  # fmt: skip


def main() -> None:
    """Write recordings, traces and the package's scores."""
    from test_atm_equals_autotuning_methodology import the_packages_p

    save(recording(False, 0.12, 5), HERE / "minimised.json.gz")
    save(recording(True, 0.05, 6), HERE / "maximised.json.gz")
    stored = []
    for name, optimizer, repeats in CASES:
        ax = atm.axis(load(HERE / f"{name}.json.gz"))
        traces = [replay(optimizer, ax.recording, seed=s, session=ax.session()) for s in range(repeats)]
        asks = [t.asks.tolist() for t in traces if t.asks is not None]
        expected = {str(seed): the_packages_p(ax.recording, asks, seed) for seed in (0, 7)}
        stored.append({"recording": name, "optimizer": optimizer.__name__, "asks": asks, "p": expected})
        print(name, optimizer.__name__, repeats, expected, [len(a) for a in asks][:5])
    write_json(HERE / "atm_traces.json.gz", stored, indent=None)


if __name__ == "__main__":
    main()
