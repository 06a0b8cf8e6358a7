"""Measure every configuration of a kernel's space: a recording, on which optimizers are scored and evolved."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from metabench import provenance, recording
from metabench.details import PARTS, Details
from metabench.errors import UserError
from metabench.kernel import Kernel, find, with_headers
from metabench.recording import Recording
from metabench.space import Space

from . import backend
from .device import compiler_version
from .interrupt import interruptible
from .journal import Journal
from .outcome import Outcome
from .pool import Pool
from .task import Task

Progress = Callable[[int, int, Outcome], None]
"""Called after each measurement with (measurements done, measurements in all, the outcome)."""


def record(
    kernel: Kernel | str,
    device: str,
    out: Path | str,
    *,
    flags: tuple[str, ...] | None = None,
    workers: int = 2,
    passes: int = 1,
    overwrite: bool = False,
    progress: Progress | None = None,
    **options: Any,
) -> Recording:
    """Measure all valid configurations of `kernel` on `device` and write them to `out` as a Kernel Tuner cache file.

    After each configuration it is on disk in `out` + ".part"; the same call goes on from there, and a finished recording of
    the same source, space and flags is returned as it is. Builds run in parallel, timing one at a time.

    Args:
        device: "avx512", "avx2", "sse42" or "native" (`device.INSTRUCTION_SETS`); any name if `flags` are given.
        out: the file, .json or .json.gz.
        passes: how often to go through the whole space. A machine has slow minutes; of several passes, hours or minutes
            apart, the one with the least time counts for each configuration, and its runs are kept.
        overwrite: measure anew what is there.
        options: of `Task`: size, repeats, compiler, build_seconds, run_seconds, ...

    Raises:
        UserError: no compiler, unknown device, a kernel that cannot be measured, or a recording of something else at `out`.
        Interrupted: ctrl-C or SIGTERM; what was measured is in the journal.
    """
    kernel = find(kernel) if isinstance(kernel, str) else kernel
    out = Path(out)
    task = Task.of(kernel, device if flags is None else None, flags, **options)
    space = Space.from_t1(kernel.space_definition())
    identity = _identity(task, device, space)
    part = out.with_name(out.name + ".part")
    if overwrite:
        out.unlink(missing_ok=True)
        part.unlink(missing_ok=True)
    if out.exists():
        return _finished(out, space, identity)
    journal = Journal(part, identity)
    try:
        with interruptible():
            _measure_missing(journal, task, space, workers, passes, progress)
        best = [_best([journal.outcomes[turn, row] for turn in range(passes)]) for row in range(len(space))]
        result = _recording(task, device, space, best, identity, passes)
        recording.save(result, out)
    except BaseException:
        journal.close()
        raise
    journal.close(remove=True)
    return result


def _measure_missing(
    journal: Journal, task: Task, space: Space, workers: int, passes: int, progress: Progress | None
) -> None:
    missing = [
        (turn, row) for turn in range(passes) for row in range(len(space)) if (turn, row) not in journal.outcomes
    ]
    total = passes * len(space)
    with Pool(task, workers) as pool:
        for place, outcome in pool.measure(space.describe(row) for _, row in missing):
            journal.add(*missing[place], outcome)
            if progress:
                progress(len(journal.outcomes), total, outcome)


def _best(outcomes: list[Outcome]) -> Outcome:
    """The pass that counts: the fastest of those that went well, else the first."""
    correct = [o for o in outcomes if o.time is not None]
    return min(correct, key=lambda o: o.time or 0.0) if correct else outcomes[0]


def _identity(task: Task, device: str, space: Space) -> dict[str, Any]:
    """What makes two measurements comparable, and so goes on record."""
    source = backend.source_of(task.kernel, task.backend)
    text = b"".join(path.read_bytes() for path in with_headers(source))
    return {
        "kernel_name": task.kernel.name,
        "device": device,
        "processor": provenance.processor(),
        "compiler": compiler_version(task.compiler),
        "flags": list(task.flags),
        "source_sha256": hashlib.sha256(text).hexdigest(),
        "problem_size": np.ravel(task.size if task.size is not None else _own_size(task.kernel)).tolist(),
        "input_seed": task.seed,
        "repeats": task.repeats,
        "threads": task.threads,
        "realtime": task.realtime,
        "space": {"names": list(space.names), "values": [list(v) for v in space.values], "configurations": len(space)},
    }


def _own_size(kernel: Kernel) -> Any:
    return kernel.space_definition().get("KernelSpecification", {}).get("ProblemSize", [])


def _finished(out: Path, space: Space, identity: dict[str, Any]) -> Recording:
    there = recording.load(out, space=space)
    different = [k for k in ("source_sha256", "flags", "compiler", "processor") if there.meta.get(k) != identity[k]]
    if different:
        raise UserError(f"{out} was recorded with another {', '.join(different)}; overwrite it, or record elsewhere")
    return there


def _recording(
    task: Task, device: str, space: Space, outcomes: list[Outcome], identity: dict[str, Any], passes: int
) -> Recording:
    """Outcomes in row order -> recording, with FLOP/s beside the time."""
    reference = task.kernel.reference()
    work = reference.work(reference.inputs(task.size, seed=task.seed)) if hasattr(reference, "work") else np.nan
    values = np.array([np.nan if o.time is None else round(o.time, 5) for o in outcomes])
    meta = {k: v for k, v in identity.items() if k not in ("space", "device")}
    meta |= {"device_name": f"{identity['processor']}, {device}", "passes": passes}
    meta |= {k: v for k, v in provenance.stamp().items() if k in ("date", "versions", "system")}
    status = np.array([o.status for o in outcomes])
    metrics = {"GFLOP/s": np.round(work / values / 1e6, 3)} if np.isfinite(work) else {}
    details = _details(outcomes)
    name = task.kernel.name
    return Recording(name, device, space, values, details.cost(), status, metrics=metrics, meta=meta, details=details)


def _details(outcomes: list[Outcome]) -> Details:
    """What each evaluation consisted of, rounded to what the clock can tell."""
    return Details.of(
        [{name: round(getattr(o, f"{name}_time"), 3) for name in PARTS if name != "strategy"} for o in outcomes],
        [[round(t, 5) for t in o.times] for o in outcomes],
        [o.timestamp for o in outcomes],
        [{"error": o.error} if o.error else {} for o in outcomes],
    )
