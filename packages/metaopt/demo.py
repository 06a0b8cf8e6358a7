"""metaopt demo: the whole loop, small. No key, no GPU, no network: minutes on two cores.

evolve a tuner on gemm -> score it on convolution -> tune the learned optimizer's step kernel with it -> take steps
"""

from __future__ import annotations

from pathlib import Path

from omegaconf import DictConfig

from evotune.jail import JailLimits
from evotune.jailed import JailedFile
from metabench.errors import UserError
from metabench.files import write_atomic, write_json

from . import console, evolve, score, steps, tune


def run(config: DictConfig, out: Path) -> str:
    """Run the four parts in a row, each into its own folder of the run."""
    program = _evolve(config, out / "evolve")
    p = _score(config, out / "score", program)
    ratio = _tune(config, out / "tune", program)
    difference = _steps(config, out / "steps")
    write_json(
        out / "demo.json", {"program": str(program.relative_to(out)), "P": p, "ratio": ratio, "steps": difference}
    )
    return f"P {p:.2f} on spaces that the tuner never saw; step kernel {ratio:.2f} times the default's speed"


def _evolve(config: DictConfig, out: Path) -> Path:
    train, test = score.recordings_of(config.train), score.recordings_of(config.test)
    console.heading("1  Recordings, measured on the processor that the README names")
    for split, recordings in (("train", train), ("held out", test)):
        for recording in recordings:
            print(f"{split:9} {recording}")
    console.heading("2  Evolve a tuner on the training recordings")
    result = evolve.evolution(config, train, out)
    print(evolve.describe(result))
    if result.program is None:
        raise UserError(result.why_none())
    return result.program


def _score(config: DictConfig, out: Path, program: Path) -> float:
    console.heading("3  Score it on the held-out recordings")
    recordings = score.recordings_of(config.test)
    jail = JailLimits(**config.jail)
    names = {"evolved": JailedFile(str(program), jail), **{name: name for name in config.optimizers}}
    scores = score.scores_of(names, recordings, config.scoring, config.seed)
    print(score.table(scores))
    score.write(scores, out, recordings=recordings)
    return scores.mean("evolved").mean


def _tune(config: DictConfig, out: Path, program: Path) -> float:
    console.heading("4  Tune the learned optimizer's step kernel on this machine with it")
    tuning = tune.tune(config.tune, str(program), out, name="evolved")
    text = tune.describe(tuning)
    print(text)
    tune.keep(tuning, config.tune)
    whole = steps.time_backends(tuning.configuration)
    print(steps.describe_times(whole))
    write_atomic(out / "tuning.txt", f"{text}\n{steps.describe_times(whole)}\n")
    return tuning.speedup[0] if tuning.speedup else 1.0


def _steps(config: DictConfig, out: Path) -> float:
    console.heading("5  Optimizer steps with the tuned kernel and with the reference")
    comparison = steps.compare_backends(config.steps, config.seed)
    print(comparison)
    write_atomic(out / "steps.txt", f"{comparison}\n")
    return comparison.relative_difference
