"""metaopt record: measure every configuration of a kernel on this machine -> a recording."""

from __future__ import annotations

from pathlib import Path

from omegaconf import DictConfig

from evotune.measure import Interrupted, Outcome
from evotune.measure import record as record_space
from metabench import kernel
from metabench.space import Space

from . import console


def run(config: DictConfig, out: Path) -> str:
    """Measure, or go on where an earlier run stopped; the recording's path is part of the result."""
    found = kernel.find(config.kernel)
    target = Path(config.out).absolute()
    total = config.passes * len(Space.from_t1(found.space_definition()))
    with console.progress(f"recording {config.kernel} on {config.device}", total) as update:

        def note(done: int, _: int, outcome: Outcome) -> None:
            update(done, f"{outcome.time:.3f} ms" if outcome.time is not None else f"failed: {outcome.status}")

        try:
            recording = record_space(
                found,
                config.device,
                target,
                workers=config.workers,
                passes=config.passes,
                overwrite=config.overwrite,
                progress=note,
                repeats=config.repeats,
                build_seconds=config.build_seconds,
                run_seconds=config.run_seconds,
                realtime=config.realtime,
            )
        except Interrupted as stop:
            print(f"{stop}; what was measured is in {target}.part, and the same command goes on from there")
            raise SystemExit(128 + stop.number) from None
    print(recording)
    return f"recording: {target}, optimum {recording.optimum:.4g} {recording.unit}"
