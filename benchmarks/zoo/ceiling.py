"""What P a run can have: by what it holds from its second evaluation on, and by when it measures the optimum.

    python benchmarks/zoo/ceiling.py --root HUB

An invented run on each training space: first the configuration of a given rank, then random worse ones, and the optimum when a
given share of the budget is spent, or never. No optimizer is involved. Results go to benchmarks/zoo/ceiling.json.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from measure import SPLITS, Measure

from metabench import provenance
from metabench.baseline import Baseline
from metabench.files import write_json
from metabench.recording import Recording
from metabench.replay import Limits, Session, Stop
from metabench.score import performance

OUT = Path(__file__).with_suffix(".json")
RANKS = (1, 2, 4, 11, 51)  # of what is held before the optimum; the optimum itself has rank 0
SHARES = (0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 1.0)


def run(recording: Recording, base: Baseline, rank: int, share: float) -> float:
    """P of the invented run."""
    order = np.argsort(recording.losses, kind="stable")
    session = Session(recording, Limits(seconds=base.end))
    worse = np.random.default_rng(0).permutation(order[rank + 1 :])
    try:
        session.ask(recording.space[int(order[rank])])
        for row in worse:
            if share < 1.0 and session.spent_fraction >= share:
                session.ask(recording.space[int(order[0])])
                break
            session.ask(recording.space[int(row)])
    except Stop:
        pass
    return performance(session.trace(), recording, base)


def main() -> None:
    """All ranks and shares on the training spaces."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", required=True, help="folder of the benchmark hub")
    measure = Measure(parser.parse_args().root)
    spaces = {}
    for space in SPLITS["train"]:
        recording, base = measure.get(space)
        best = np.sort(recording.losses)
        spaces[space] = {
            "budget in evaluations": round(base.evaluations),
            "loss in optima, by rank": {str(r): round(float(best[r] / best[0]), 4) for r in RANKS},
            "p, by rank, for each share": {
                str(rank): [round(run(recording, base, rank, share), 3) for share in SHARES] for rank in RANKS
            },
        }
        print(space, spaces[space], flush=True)
    command = "python benchmarks/zoo/ceiling.py --root HUB"
    write_json(
        OUT, {"spaces": spaces, "shares": [*SHARES[:-1], "never"], "command": command, "provenance": provenance.stamp()}
    )


if __name__ == "__main__":
    main()
