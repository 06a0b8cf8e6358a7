"""The loop: LLaMEA's evolution, with our generator and our evaluation.

LLaMEA keeps the population, draws parents and mutation prompts, and selects. It does so in one thread, seeded; what takes time
is ours: its call for a solution only notes the prompt down, and when it hands a generation over to be evaluated, replies are
fetched and programs evaluated side by side, an evaluation starting as soon as its reply is there. So a seed decides a run,
however the work is spread.
"""

from __future__ import annotations

import dataclasses
import json
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from metabench.errors import UserError
from metabench.files import write_atomic, write_json
from metabench.recording import Recording
from metabench.replay import global_seed

from . import export, launch
from .accounting import Account, Caps
from .archive import Archive, Candidate
from .evaluate import Evaluation, Evaluator
from .export import ARCHIVE, PROGRAM
from .generators.base import Generator
from .jail import JailLimits
from .loop import Loop
from .prompts import Prompts, spaces_of
from .savings import Savings, savings
from .settings import Settings as Settings
from .study import Enough, Study
from .study import Progress as Progress

SUMMARY = "evolution.json"
COMPLETE = "all calls were made"
_FRESH = 1_000_000  # seeds of the confirmation, away from those that selected


@dataclass(frozen=True)
class EvolutionResult:
    """What an evolution found.

    Attributes:
        source: the best program; None if no candidate was valid.
        name, description: its class, its idea.
        score: mean P on fresh seeds; selected_score: the one by which it was selected.
        runs: P of every confirming run, by recording.
        history: all candidates, by call.
        failures: how many candidates failed, by kind.
        usage: calls, tokens and USD; "unknown" where a server did not tell.
        ended: why it ended: all calls made, or a cap.
        folder: where archive, program and summary are; program, archive: the files.
        savings: what was not computed twice, or not to the end.
    """

    source: str | None
    name: str
    description: str
    score: float | None
    selected_score: float | None
    runs: Mapping[str, Sequence[float]]
    history: Sequence[Candidate]
    failures: Mapping[str, int]
    usage: Mapping[str, Any]
    ended: str
    folder: Path
    seconds: float
    savings: Savings

    @property
    def archive(self) -> Path:
        """The SQLite file with everything."""
        return self.folder / ARCHIVE

    @property
    def program(self) -> Path | None:
        """The file of the best program, if there is one."""
        return self.folder / PROGRAM if self.source is not None else None

    def why_none(self) -> str:
        """The commonest reasons of failure, for when there is no program."""
        reasons = Counter(str(candidate.failure) for candidate in self.history if candidate.failure)
        listed = "; ".join(f"{count} x {reason[:200]}" for reason, count in reasons.most_common(3))
        return f"none of {len(self.history)} candidates was valid: {listed}"


def evolve(
    generator: Generator,
    recordings: Sequence[Recording],
    out: Path | str,
    settings: Settings | None = None,
    *,
    prompts: Prompts | None = None,
    limits: JailLimits | None = None,
    caps: Caps | None = None,
    launcher: Mapping[str, Any] | None = None,
    prices: Mapping[str, tuple[float, float]] | None = None,
    progress: Callable[[Progress], None] | None = None,
    resume: bool = False,
    **changes: Any,
) -> EvolutionResult:
    """Evolve an optimizer.

    Args:
        generator: who writes programs.
        recordings: what they are scored on.
        out: the run's folder.
        settings: see `Settings`; `changes` are fields of it, given by name.
        launcher: where candidates run, as `evotune.launch.make` takes it: {"name": "local"} or {"name": "submitit", ...}.
        caps, prices: upper bounds of what the run may use; by model, USD for a million tokens of prompt and of reply.
        progress: called after every candidate, from this thread.
        resume: take up the run in `out`: what it paid for is not asked for again, what it evaluated is not run again.

    Raises:
        UserError: bad settings or caps, or a folder that has a run already (or none, or another one, with `resume`); before
            anything is spent.
    """
    started = time.monotonic()
    settings = _settings(settings, changes)
    if settings.edits and not generator.edits:
        raise UserError(
            f"evolution.edits needs a generator that writes edits; {generator.model!r} writes whole programs"
        )
    account = Account(caps or Caps(), prices or {}, generator.models)
    prompts, folder = prompts or Prompts(), Path(out)
    described = _described(settings, generator, recordings, prompts)
    with (
        _archive(folder / ARCHIVE, described, resume) as archive,
        _evaluator(recordings, settings, limits, launcher, folder) as evaluator,
        global_seed(settings.seed),
    ):
        evaluator.prepare()
        study = Study(generator, evaluator, archive, account, settings.calls, progress)
        task = prompts.task_text(spaces_of(recordings) if settings.info else None)
        ended = COMPLETE
        try:
            Loop(study.assess, settings, prompts, task).run()
        except Enough as cap:
            ended = str(cap)
        history = archive.candidates()
        winner = _confirm(evaluator, history, settings)
    result = EvolutionResult(
        **_of(winner), history=history, failures=Counter(c.status for c in history if c.failure), usage=account.summary(),
        ended=ended, folder=folder, seconds=time.monotonic() - started, savings=savings(history, settings.repeats),
    )  # fmt: skip
    _write(result, winner, described)
    return result


def _evaluator(
    recordings: Sequence[Recording],
    settings: Settings,
    limits: JailLimits | None,
    launcher: Mapping[str, Any] | None,
    folder: Path,
) -> Evaluator:
    limits, options = limits or JailLimits(), dict(launcher or {"name": "local"})
    where = launch.make(str(options.pop("name")), settings.workers, limits, folder / "jobs", **options)
    most = settings.candidate_seconds
    return Evaluator(
        recordings, settings.repeats, settings.seed, settings.workers, launcher=where, candidate_seconds=most
    )


def _settings(settings: Settings | None, changes: Mapping[str, Any]) -> Settings:
    known = {f.name for f in dataclasses.fields(Settings)}
    if unknown := sorted(set(changes) - known):
        raise UserError(f"evolution has no setting {', '.join(unknown)}; it has {', '.join(sorted(known))}")
    return dataclasses.replace(settings or Settings(), **changes)


def _described(
    settings: Settings, generator: Generator, recordings: Sequence[Recording], prompts: Prompts
) -> dict[str, Any]:
    """Everything that decides a run, for the archive. The number of workers does not."""
    decisive = {k: v for k, v in dataclasses.asdict(settings).items() if k != "workers"}
    texts = json.loads(json.dumps(dataclasses.asdict(prompts)))
    asked = {"model": generator.model, **{f"generator.{name}": value for name, value in generator.decisive.items()}}
    return {**decisive, **asked, "recordings": [r.name for r in recordings], "prompts": texts}


def _archive(path: Path, described: dict[str, Any], resume: bool) -> Archive:
    if not resume:
        return Archive.create(path, described)
    archive = Archive.open(path)
    before = archive.settings()
    if changed := sorted(k for k in {*described, *before} if described.get(k) != before.get(k)):
        archive.close()
        raise UserError(
            f"{path} is a run with other settings ({', '.join(changed)}); it can only be taken up as it was started"
        )
    return archive


def _confirm(
    evaluator: Evaluator, history: Sequence[Candidate], settings: Settings
) -> tuple[Candidate, Evaluation] | None:
    """The best of the finalists on fresh seeds, None if no candidate is valid."""
    ranked = sorted((c for c in history if c.score is not None and not c.repeated), key=lambda c: -(c.score or 0.0))
    finalists = ranked[: settings.finalists]
    futures = [evaluator.submit(c.source, settings.seed + _FRESH, settings.confirmations) for c in finalists]
    confirmed = [(c, e) for c, e in zip(finalists, (f.result() for f in futures), strict=True) if e.failure is None]
    return max(confirmed, key=lambda pair: pair[1].fitness, default=None)


def _of(winner: tuple[Candidate, Evaluation] | None) -> dict[str, Any]:
    """What a result says of its program."""
    if winner is None:
        return {"source": None, "name": "", "description": "", "score": None, "selected_score": None, "runs": {}}
    best, confirmed = winner
    return {
        "source": best.source, "name": best.name, "description": best.description, "score": confirmed.score,
        "selected_score": best.score, "runs": confirmed.runs,
    }  # fmt: skip


def _write(result: EvolutionResult, winner: tuple[Candidate, Evaluation] | None, described: Mapping[str, Any]) -> None:
    chosen = None
    if winner is not None:
        best, confirmed = winner
        told = export.provenance(best, described, confirmed.runs)
        write_atomic(result.folder / PROGRAM, export.render(best.source, told))
        chosen = {**_of(winner), "call": best.call, "runs": {name: list(p) for name, p in confirmed.runs.items()}}
        del chosen["source"]
    summary = {
        "settings": described, "best": chosen, "failures": dict(result.failures), "usage": dict(result.usage),
        "ended": result.ended, "scores": [candidate.score for candidate in result.history], "seconds": result.seconds,
        "savings": dataclasses.asdict(result.savings),
    }  # fmt: skip
    write_json(result.folder / SUMMARY, summary)
