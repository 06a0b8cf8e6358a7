"""The loop: LLaMEA's evolution, with our generator and our evaluation.

LLaMEA keeps the population, draws parents and mutation prompts, and selects. It does so in one thread, seeded; what
takes time is ours: its call for a solution only notes the prompt down, and when it hands a generation over to be
evaluated, replies are fetched and programs evaluated side by side, an evaluation starting as soon as its reply is
there. So a seed decides a run, however the work is spread.
"""

from __future__ import annotations

import dataclasses
import json
import math
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from metabench.errors import UserError
from metabench.files import write_atomic, write_json
from metabench.recording import Recording
from metabench.replay import global_seed

from . import replies
from .archive import Archive, Candidate
from .contract import Failure, FailureKind
from .evaluate import Evaluation, Evaluator
from .generators.base import Generator, NoReply, Reply
from .jail import JailLimits
from .loop import Loop, Proposal
from .prompts import Prompts, spaces_of

ARCHIVE, PROGRAM, SUMMARY = "archive.sqlite", "best.py", "evolution.json"
_FRESH = 1_000_000  # seeds of the confirmation, away from those that selected


@dataclass(frozen=True)
class Settings:
    """What an evolution is told.

    Attributes:
        parents, offspring: size of the population, and of each generation after the first.
        elitism: whether parents compete with their offspring (plus) or not (comma).
        calls: calls to the generator in all.
        repeats: runs on each recording by which a candidate is scored.
        seed: decides the run.
        workers: candidates evaluated at a time.
        finalists, confirmations: the best so many are scored again, on so many fresh seeds, and the best of these is
            the result: the score that selected a program is too high by the luck that selected it.
        info: whether the prompts describe the spaces.
    """

    parents: int = 4
    offspring: int = 12
    elitism: bool = True
    calls: int = 40
    repeats: int = 3
    seed: int = 0
    workers: int = 2
    finalists: int = 3
    confirmations: int = 10
    info: bool = False

    def __post_init__(self) -> None:
        for name in ("parents", "offspring", "repeats", "workers", "finalists", "confirmations"):
            if getattr(self, name) < 1:
                raise UserError(f"evolution.{name} must be at least 1, not {getattr(self, name)}")
        if self.calls < self.parents + self.offspring:
            raise UserError(
                f"a budget of {self.calls} calls is smaller than one generation: {self.parents} parents and {self.offspring}"
                f" offspring need {self.parents + self.offspring}; nothing was spent"
            )


@dataclass(frozen=True)
class Progress:
    """What the callback is told after every candidate.

    Attributes:
        done, calls: candidates evaluated, and how many there will be.
        best: the best score so far; None while there is none.
        last: the candidate just evaluated.
    """

    done: int
    calls: int
    best: float | None
    last: Candidate


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
        folder: where archive, program and summary are; program, archive: the files.
    """

    source: str | None
    name: str
    description: str
    score: float | None
    selected_score: float | None
    runs: Mapping[str, Sequence[float]]
    history: Sequence[Candidate]
    failures: Mapping[str, int]
    folder: Path
    seconds: float

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
        progress: called after every candidate, from this thread.
        resume: take up the run in `out`: what it paid for is not asked for again, what it evaluated is not run again.

    Raises:
        UserError: bad settings, or a folder that has a run already (or none, or another one, with `resume`); before
            anything is spent.
    """
    started = time.monotonic()
    settings = _settings(settings, changes)
    prompts, folder = prompts or Prompts(), Path(out)
    described = _described(settings, generator, recordings, prompts)
    with (
        _archive(folder / ARCHIVE, described, resume) as archive,
        Evaluator(recordings, settings.repeats, settings.seed, settings.workers, limits) as evaluator,
        global_seed(settings.seed),
    ):
        evaluator.prepare()
        study = _Study(generator, evaluator, archive, settings, progress)
        spaces = spaces_of(recordings) if settings.info else None
        Loop(study.assess, settings, prompts, prompts.task_text(spaces)).run()
        history = archive.candidates()
        best, confirmed = _confirm(evaluator, history, settings)
    result = _result(best, confirmed, history, folder, time.monotonic() - started)
    _write(result, described)
    return result


class _Study:
    """Turns a generation of prompts into scored solutions."""

    def __init__(
        self,
        generator: Generator,
        evaluator: Evaluator,
        archive: Archive,
        settings: Settings,
        progress: Callable[[Progress], None] | None,
    ) -> None:
        self.generator, self.evaluator, self.archive = generator, evaluator, archive
        self.settings, self.progress = settings, progress
        self.done, self.best = 0, -math.inf

    def assess(self, proposals: Sequence[Proposal]) -> list[tuple[Candidate, Evaluation]]:
        """Ask for every proposal's reply, evaluate every program; results in the order of the proposals."""
        finished: dict[int, tuple[Candidate, Evaluation]] = {}
        waiting: dict[Future[Any], Proposal] = {}
        with ThreadPoolExecutor(self.generator.concurrent, thread_name_prefix="reply") as pool:
            for proposal in proposals:
                known = self.archive.find(proposal.call)
                if known is None:
                    waiting[pool.submit(_ask, self.generator, proposal)] = proposal
                else:
                    self._take_up(proposal, known, waiting, finished)
            while waiting:
                done, _ = wait(waiting, return_when=FIRST_COMPLETED)
                for future in sorted(done, key=lambda f: waiting[f].call):
                    self._advance(future, waiting.pop(future), waiting, finished)
        return [finished[proposal.call] for proposal in proposals]

    def _advance(
        self,
        future: Future[Any],
        proposal: Proposal,
        waiting: dict[Future[Any], Proposal],
        finished: dict[int, tuple[Candidate, Evaluation]],
    ) -> None:
        """A reply came, or an evaluation ended."""
        outcome = future.result()
        if isinstance(outcome, Evaluation):
            self._finish(proposal, outcome, finished)
            return
        reply, reason, asked = outcome
        operator, parents = proposal.operator, list(proposal.parents)
        self.archive.add_reply(proposal.call, proposal.generation, operator, parents, proposal.prompt, reply, asked)
        self._evaluate(proposal, reply.text if reply else None, reason, waiting, finished)

    def _take_up(
        self,
        proposal: Proposal,
        known: Candidate,
        waiting: dict[Future[Any], Proposal],
        finished: dict[int, tuple[Candidate, Evaluation]],
    ) -> None:
        """Go on where an earlier run was interrupted."""
        if known.prompt != proposal.prompt:
            raise UserError(
                f"{self.archive.path}: call {known.call} had another prompt; the run cannot be taken up with this version"
            )
        if known.status == "pending":
            self._evaluate(proposal, known.reply, "", waiting, finished)
            return
        runs = {name: tuple(p) for name, p in known.runs.items()}
        evaluation = Evaluation(known.name, runs, known.failure, repeated=known.repeated)
        if known.source:
            self.evaluator.remember(known.source, evaluation)
        self._report(known, evaluation)
        finished[proposal.call] = known, evaluation

    def _evaluate(
        self,
        proposal: Proposal,
        text: str | None,
        reason: str,
        waiting: dict[Future[Any], Proposal],
        finished: dict[int, tuple[Candidate, Evaluation]],
    ) -> None:
        program = replies.read(text)
        if program is None:
            failure = Failure(
                FailureKind.NO_REPLY, reason or "the reply holds no program: no code block defines a class"
            )
            self._finish(proposal, Evaluation("", failure=failure), finished)
            return
        proposal.source, proposal.description = program.source, program.description
        waiting[self.evaluator.submit(program.source)] = proposal

    def _finish(
        self, proposal: Proposal, evaluation: Evaluation, finished: dict[int, tuple[Candidate, Evaluation]]
    ) -> None:
        self.archive.add_evaluation(proposal.call, proposal.description, proposal.source, evaluation)
        candidate = self.archive.find(proposal.call)
        assert candidate is not None
        self._report(candidate, evaluation)
        finished[proposal.call] = candidate, evaluation

    def _report(self, candidate: Candidate, evaluation: Evaluation) -> None:
        self.done += 1
        self.best = max(self.best, evaluation.fitness)
        if self.progress:
            best = self.best if math.isfinite(self.best) else None
            self.progress(Progress(self.done, self.settings.calls, best, candidate))


def _ask(generator: Generator, proposal: Proposal) -> tuple[Reply | None, str, float]:
    """One call: the reply, or the reason why there is none, and when it was asked for."""
    asked = time.time()
    try:
        return generator.reply(proposal.messages, proposal.call), "", asked
    except NoReply as error:
        return None, str(error), asked
    except Exception as error:  # whatever a generator raises costs one candidate, never the run
        return None, f"{type(error).__name__}: {error}", asked


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
    return {**decisive, "model": generator.model, "recordings": [r.name for r in recordings], "prompts": texts}


def _archive(path: Path, described: dict[str, Any], resume: bool) -> Archive:
    if not resume:
        return Archive.create(path, described)
    archive = Archive.open(path)
    before = archive.settings()
    if changed := sorted(k for k in described if described[k] != before.get(k)):
        archive.close()
        raise UserError(
            f"{path} is a run with other settings ({', '.join(changed)}); it can only be taken up as it was started"
        )
    return archive


def _confirm(
    evaluator: Evaluator, history: Sequence[Candidate], settings: Settings
) -> tuple[Candidate | None, Evaluation | None]:
    """The best of the finalists on fresh seeds."""
    ranked = sorted((c for c in history if c.score is not None and not c.repeated), key=lambda c: -(c.score or 0.0))
    finalists = ranked[: settings.finalists]
    futures = [evaluator.submit(c.source, settings.seed + _FRESH, settings.confirmations) for c in finalists]
    confirmed = [(c, e) for c, e in zip(finalists, (f.result() for f in futures), strict=True) if e.failure is None]
    if not confirmed:
        return None, None
    return max(confirmed, key=lambda pair: pair[1].fitness)


def _result(
    best: Candidate | None, confirmed: Evaluation | None, history: Sequence[Candidate], folder: Path, seconds: float
) -> EvolutionResult:
    failures = Counter(candidate.status for candidate in history if candidate.failure)
    if best is None or confirmed is None:
        return EvolutionResult(None, "", "", None, None, {}, history, failures, folder, seconds)
    return EvolutionResult(
        best.source,
        best.name,
        best.description,
        confirmed.score,
        best.score,
        confirmed.runs,
        history,
        failures,
        folder,
        seconds,
    )


def _write(result: EvolutionResult, described: Mapping[str, Any]) -> None:
    if result.source is not None:
        write_atomic(result.folder / PROGRAM, result.source)
    summary = {
        "settings": described,
        "best": None if result.source is None else {
            "name": result.name, "description": result.description, "score": result.score,
            "selected_score": result.selected_score, "runs": {k: list(v) for k, v in result.runs.items()},
        },
        "failures": dict(result.failures),
        "scores": [candidate.score for candidate in result.history],
        "seconds": result.seconds,
    }  # fmt: skip
    write_json(result.folder / SUMMARY, summary)
