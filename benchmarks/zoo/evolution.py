"""Does evolution beat the design, and does it improve it?

    python benchmarks/zoo/evolution.py --root HUB [--calls 100] [--seeds 3] [--repeats 12] [--runs runs/zoo_evolution]

Three steps, each of which a second call takes up where the first stopped:

1. evolve: the components generator, on training spaces, with the parts of gp_general among its components; from programs drawn
   at random ("components"), and from gp_general's design in components ("design"). One archive a run, in `--runs`.
2. choose: the best few of every run by the score that selected them run again on fresh seeds; the best of these is the run's.
3. score: from either start the program that this found best, gp_general and its design in components, all with the same new
   seeds, on training and test GPUs.

Nothing is chosen in or after the third step, the only one that sees a test GPU.

The loop is that of `metaopt evolve`; the evaluator is a thriftier one, so that several hundred programs fit into an hour of one
core. A run ends when it has measured the optimum, because P cannot change after that. Spaces on which runs are cheap and scatter
have more of them and come first, and a program that cannot reach the worst parent any more is given up in between. Programs run
in this process, without the jail: the components generator puts them together from our own source. Results: evolution.json.
"""

from __future__ import annotations

import argparse
import dataclasses
import hashlib
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from evotune import zoo
from evotune.accounting import Account
from evotune.archive import Archive, Candidate
from evotune.contract import Failure, FailureKind, check
from evotune.evaluate import Evaluation, Evaluator
from evotune.generators.components import DESIGN, ComponentsGenerator, find_genomes, program
from evotune.loop import Loop
from evotune.prompts import Prompts
from evotune.settings import Settings
from evotune.study import Progress, Study
from metabench import bootstrap, catalog, provenance
from metabench.baseline import baseline
from metabench.files import read_json, write_json
from metabench.pairs import seeds_of
from metabench.recording import Recording
from metabench.replay import Limits, Session, Trace, global_seed, replay
from metabench.score import performance

OUT = Path(__file__).with_suffix(".json")
TEST = [f"{k}/{d}" for k in ("convolution_milo", "dedispersion_milo") for d in ("A6000", "W6600", "W7800")]
ARMS: dict[str, tuple[str, ...]] = {"components": (), "design": ("design",)}  # name: what a run starts from
PLAN: dict[str, tuple[int, ...]] = {  # runs of a program on each space, in rounds
    "convolution_milo/MI250X": (1, 1, 2),
    "dedispersion_milo/MI250X": (1, 0, 0),
    "convolution_milo/A4000": (1, 1, 2),
    "convolution_milo/A100": (0, 1, 1),
    "dedispersion_milo/A4000": (0, 1, 0),
}
CHOICE = {  # runs of a finalist: the long space, four fifths of the time of all six, enters here
    "convolution_milo/MI250X": 8, "dedispersion_milo/MI250X": 1, "convolution_milo/A4000": 8, "convolution_milo/A100": 4,
    "dedispersion_milo/A4000": 2, "dedispersion_milo/A100": 1,
}  # fmt: skip
TRAIN = list(CHOICE)
LEAST = 0.75  # a program that will not reach this is given up even where its parents have less
SPREAD = 0.1  # usual standard deviation of a run, where few runs tell little of it
START, EACH = 1.0, 0.012  # CPU seconds of its own that a program may take for a run, and more for every evaluation
IN_ALL = 20.0  # CPU seconds of all runs of a program
FINALISTS = 2
CHOOSING, SCORING = 3_000_000, 5_000_000  # seeds: away from each other and from those of the evolutions


@dataclasses.dataclass
class Short(Session):
    """A run that ends, unless it is `patient`, when it has taken too long."""

    patient: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        self.latest = time.process_time() + START

    def ask(self, configuration: Any) -> float:
        """As a session's."""
        loss = super().ask(configuration)
        self.latest += EACH
        if not self.patient and time.process_time() > self.latest:
            self.ended = "slow"
        return loss


class Thrifty(Evaluator):
    """Scores programs by PLAN, in this process, one at a time."""

    def _evaluate(self, source: str, seed: int, repeats: int, bar: float | None) -> Evaluation:
        started, make = time.process_time(), optimizer_of(source)
        runs: dict[str, list[float]] = {}
        digest = hashlib.sha256()
        for turn in range(3):
            for recording in self.recordings:
                for _ in range(PLAN[recording.name][turn]):
                    own = runs.setdefault(recording.name, [])
                    trace = play(make, recording, seeds_of(recording.name, seed + len(own), 1)[0])
                    digest.update(trace.rows.tobytes())
                    cpu = time.process_time() - started
                    if trace.error or trace.ended == "slow" or cpu > IN_ALL:
                        kind = FailureKind.CRASH if trace.error else FailureKind.TIMEOUT
                        failure = Failure(kind, trace.error or "too slow")
                        return Evaluation(make.__name__, failure=failure, cpu_seconds=cpu)
                    own.append(performance(trace, recording, self._baseline(recording)))
            if turn == 0 and (known := self._seen(first := digest.hexdigest(), seed, repeats)) is not None:
                return dataclasses.replace(known, repeated=True, cpu_seconds=time.process_time() - started)
            if likely(runs, len(self.recordings)) < max(LEAST, LEAST if bar is None else bar):
                break
        kept = {name: tuple(p) for name, p in runs.items()}
        return Evaluation(make.__name__, kept, cpu_seconds=time.process_time() - started, trace=first)


def likely(runs: dict[str, list[float]], spaces: int) -> float:
    """What a program's score may still become: three standard errors more, and 0.2 more on spaces without a run."""
    mean = float(np.mean([np.mean(p) for p in runs.values()]))
    spread = max(SPREAD, float(np.sqrt(np.mean([np.var(p, ddof=1) for p in runs.values() if len(p) > 2] or [0.0]))))
    chance = 3.0 * spread * float(np.sqrt(sum(1.0 / len(p) for p in runs.values()))) / spaces
    return (mean * len(runs) + min(1.0, mean + 0.2) * (spaces - len(runs))) / spaces + chance


def play(make: Callable[[], Any], recording: Recording, seed: int, patient: bool = False) -> Trace:
    """One run within the budget, until the optimum is measured."""
    base = baseline(recording)
    session = Short(recording, Limits(seconds=base.end, loss=base.optimum), patient=patient)
    return replay(make(), recording, seed=seed, session=session)


# -- evolve -----------------------------------------------------------------------------------------------------------


def evolve(arm: str, seed: int, calls: int, recordings: list[Recording], folder: Path) -> list[Candidate]:
    """One evolution, or what is missing of it; with more calls than before it goes on."""
    settings = Settings(calls=calls, seed=seed, workers=1)
    prompts, path = Prompts(), folder / f"{arm}_{seed}.sqlite"
    told = {"arm": arm, "seed": seed, "plan": PLAN}
    evaluator = Thrifty(recordings, seed=1_000 * (seed + 1), workers=1)  # other seeds in every evolution

    def note(state: Progress) -> None:
        last = f"{state.last.score:.3f}" if state.last.score is not None else state.last.status
        print(
            f"{arm} {seed}: {state.done} of {calls}, {last} ({state.last.cpu_seconds:.0f} s), best {state.best}",
            flush=True,
        )

    with Archive.open(path) if path.is_file() else Archive.create(path, told) as archive, evaluator, global_seed(seed):
        generator = ComponentsGenerator(seed, prompts, ARMS[arm])
        study = Study(generator, evaluator, archive, Account(models=generator.models), calls, note)
        Loop(study.assess, settings, prompts, prompts.task_text()).run()
        return archive.candidates()


def described(history: list[Candidate]) -> dict[str, Any]:
    """What a run did: how many programs, what became of them, the best score by generation, CPU minutes."""
    best: dict[int, float] = {}
    for one in history:
        best[one.generation] = max(best.get(one.generation, -np.inf), -np.inf if one.score is None else one.score)
    return {
        "programs": len(history),
        "run": sum(not c.repeated and c.cpu_seconds > 0 for c in history),
        "failures": dict(Counter(c.status for c in history if c.failure)),
        "cpu_minutes": round(sum(c.cpu_seconds for c in history) / 60.0, 1),
        "best_by_generation": np.maximum.accumulate([best[g] for g in sorted(best)]).round(4).tolist(),
    }


# -- choose -----------------------------------------------------------------------------------------------------------


def choose(history: list[Candidate], recordings: list[Recording]) -> dict[str, Any]:
    """The finalists of a run on fresh seeds; the best of them is the run's program."""
    valid = sorted((c for c in history if c.score is not None and not c.repeated), key=lambda c: -(c.score or 0.0))
    finalists = []
    for one in valid[:FINALISTS]:
        runs = {r.name: scores(one.source, r, seeds_of(r.name, CHOOSING, CHOICE[r.name]))[0] for r in recordings}
        confirmed = bootstrap.over_repeats([np.array(p) for p in runs.values()])
        finalists.append({
            "call": one.call, "idea": one.description, "genome": dataclasses.asdict(find_genomes(one.source)[0]),
            "selected": one.score, "confirmed": confirmed.mean, "interval": [confirmed.low, confirmed.high],
            "source": one.source,
        })  # fmt: skip
    chosen = max(finalists, key=lambda one: one["confirmed"])
    source = chosen["source"]
    return {"finalists": [{k: v for k, v in one.items() if k != "source"} for one in finalists], "source": source} | {
        "chosen": chosen["call"],
        "confirmed": chosen["confirmed"],
    }


# -- score ------------------------------------------------------------------------------------------------------------


def scores(source: str, recording: Recording, seeds: Any) -> tuple[list[float], float, int]:
    """P of each run of a program, CPU seconds and evaluations of all together."""
    make, base, found, cpu, count = optimizer_of(source), baseline(recording), [], 0.0, 0
    for seed in seeds:
        trace = play(make, recording, seed, patient=True)
        if trace.error:
            raise RuntimeError(f"{make.__name__} on {recording.name} with seed {seed}: {trace.error}")
        found.append(round(performance(trace, recording, base), 5))
        cpu, count = cpu + trace.overhead, count + len(trace.rows)
    return found, cpu, count


def optimizer_of(source: str) -> Any:
    """The class that a program defines."""
    space: dict[str, Any] = {"__name__": "candidate"}
    exec(compile(source, "candidate", "exec"), space)
    return space[check(source)]


def summary(cells: dict[str, Any]) -> dict[str, Any]:
    """P by split with intervals; paired differences from gp_general and its design in components; means of an arm's runs."""
    runs = {name: {s: np.array(c["p"]) for s, c in spaces.items()} for name, spaces in cells.items()}
    found: dict[str, Any] = {}
    for name, spaces in runs.items():
        for split, names in {"train": TRAIN, "test": TEST, "all 12": TRAIN + TEST}.items():
            if not all(s in spaces for s in names):
                continue
            ours = [spaces[s] for s in names]
            row = {"p": told(bootstrap.over_repeats(ours))}
            for other in ("gp_general", "design in components"):
                if other != name and all(s in runs.get(other, {}) for s in names):
                    theirs = [runs[other][s] for s in names]
                    row[f"less {other}"] = told(bootstrap.paired_difference(ours, theirs))
            found.setdefault(name, {})[split] = row
    for name, spaces in cells.items():
        evaluations = sum(c["evaluations"] for c in spaces.values())
        found[name]["cpu_ms_an_evaluation"] = round(1e3 * sum(c["cpu"] for c in spaces.values()) / evaluations, 2)
    return found


def told(estimate: bootstrap.Estimate) -> list[float]:
    """Mean and ends of the interval."""
    return [round(v, 4) for v in (estimate.mean, estimate.low, estimate.high)]


def store(report: dict[str, Any]) -> None:
    """Write the file."""
    write_json(OUT, report | {"provenance": provenance.stamp()})


def main() -> None:
    """All that is missing."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", required=True, help="folder of the benchmark hub")
    parser.add_argument("--calls", type=int, default=100, help="programs a run")
    parser.add_argument("--seeds", type=int, default=3, help="runs from either start")
    parser.add_argument("--repeats", type=int, default=12, help="runs a space by which the chosen programs are scored")
    parser.add_argument("--design", type=Path, help="another file than the zoo's gp_general, such as an earlier one")
    parser.add_argument("--runs", type=Path, default=Path("runs/zoo_evolution"))
    parser.add_argument("--steps", default="evolve,choose,score")
    options = parser.parse_args()
    steps = options.steps.split(",")
    recordings = catalog.select(TRAIN, options.root)
    report = read_json(OUT) if OUT.is_file() else {"runs": {}, "cells": {}}
    numbers = f"--calls {options.calls} --seeds {options.seeds} --repeats {options.repeats}"
    report["command"] = f"python benchmarks/zoo/evolution.py --root HUB {numbers}"
    for seed in range(options.seeds):
        for arm in ARMS:
            run = report["runs"].setdefault(f"{arm} {seed}", {})
            if "evolve" in steps and run.get("programs", 0) < options.calls and not report["cells"]:
                report["runs"][f"{arm} {seed}"] = described(
                    evolve(arm, seed, options.calls, recordings[: len(PLAN)], options.runs)
                )
                store(report)
    for name, run in report["runs"].items():
        if "choose" in steps and "source" not in run:
            with Archive.open(options.runs / f"{name.replace(' ', '_')}.sqlite") as archive:
                run |= choose(archive.candidates(), recordings)
            store(report)
            print(f"{name}: {run['chosen']} of {[(f['call'], f['confirmed']) for f in run['finalists']]}", flush=True)
    if "score" in steps:
        designed = options.design or zoo.entry("gp_general").path
        programs = {"gp_general": designed.read_text(), "design in components": program(DESIGN)}
        report["gp_general_sha256"] = hashlib.sha256(programs["gp_general"].encode()).hexdigest()
        for arm in ARMS:
            own = {name: run for name, run in report["runs"].items() if name.startswith(f"{arm} ")}
            best = max(own, key=lambda name: own[name]["confirmed"])
            programs[best] = own[best]["source"]
        for recording in catalog.select(TRAIN + TEST, options.root):
            for name, source in programs.items():
                cells = report["cells"].setdefault(name, {})
                if len(cells.get(recording.name, {}).get("p", ())) < options.repeats:
                    p, cpu, count = scores(source, recording, seeds_of(recording.name, SCORING, options.repeats))
                    cells[recording.name] = {"p": p, "cpu": round(cpu, 3), "evaluations": count}
                    store(report)
                    print(f"{name} on {recording.name}: {np.mean(p):.3f} ({cpu:.0f} s)", flush=True)
        report["summary"] = summary(report["cells"])
        store(report)


if __name__ == "__main__":
    main()
