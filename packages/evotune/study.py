"""A generation of prompts becomes a generation of scored programs: replies fetched and programs evaluated side by side."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from typing import Any

from metabench.errors import UserError

from . import edits, replies
from .accounting import Account
from .archive import Archive, Candidate
from .contract import Failure, FailureKind
from .evaluate import Evaluation, Evaluator
from .generators.base import Gain, Generator, NoReply, Reply
from .loop import Proposal


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


class Enough(Exception):
    """A cap was reached: no more calls. The message names it."""


@dataclass
class _Generation:
    """What is under way."""

    bar: float | None
    finished: dict[int, tuple[Candidate, Evaluation]] = field(default_factory=dict)
    waiting: dict[Future[Any], Proposal] = field(default_factory=dict)
    refused: str = ""


@dataclass(frozen=True)
class _Answer:
    """How a call went: the reply, or the reason why there is none; or the cap that forbade it."""

    reply: Reply | None
    reason: str
    asked: float
    refused: str = ""


class Study:
    """Asks, evaluates, records.

    Args:
        calls: how many candidates there will be, for the callback.
    """

    def __init__(
        self,
        generator: Generator,
        evaluator: Evaluator,
        archive: Archive,
        account: Account,
        calls: int,
        progress: Callable[[Progress], None] | None,
    ) -> None:
        self.generator, self.evaluator, self.archive, self.account = generator, evaluator, archive, account
        self.calls, self.progress = calls, progress
        self.done, self.best = 0, -math.inf
        self._fitness: dict[int, float] = {}

    def assess(self, proposals: Sequence[Proposal], bar: float | None) -> list[tuple[Candidate, Evaluation]]:
        """Ask for every proposal's reply, evaluate every program; results in the order of the proposals.

        A reply is recorded before it is evaluated. Of two equal programs the one with the earlier call is evaluated.

        Args:
            bar: a score that a candidate must reach to matter; None for none.

        Raises:
            Enough: a cap was reached; what had been asked for was evaluated and recorded.
            UserError: the archive holds another run's prompts.
        """
        generation = _Generation(bar)
        with ThreadPoolExecutor(self.generator.concurrent, thread_name_prefix="reply") as pool:
            for proposal in proposals:
                known = self.archive.find(proposal.call)
                if known is None:
                    generation.waiting[pool.submit(self._ask, proposal)] = proposal
                else:
                    self._take_up(generation, proposal, known)
            while generation.waiting:
                done, _ = wait(generation.waiting, return_when=FIRST_COMPLETED)
                for future in sorted(done, key=lambda f: generation.waiting[f].call):
                    self._advance(generation, future)
        if generation.refused:
            raise Enough(generation.refused)
        finished = [generation.finished[proposal.call] for proposal in proposals]
        self.evaluator.settle(evaluation for _, evaluation in finished)
        self.generator.learn([self._gain(candidate, evaluation) for candidate, evaluation in finished])
        return finished

    def _gain(self, candidate: Candidate, evaluation: Evaluation) -> Gain:
        """What a call brought, for its author."""
        bar = max((self._fitness[parent] for parent in candidate.parents), default=-math.inf)
        model = self.generator.model_of(candidate.call)
        return Gain(model, evaluation.fitness > bar, self.account.cost(_reply_of(candidate), model))

    def _ask(self, proposal: Proposal) -> _Answer:
        """One call, in a thread of its own. Whatever a generator raises costs one candidate, never the run."""
        asked = time.time()
        model = self.generator.model_of(proposal.call)
        if refused := self.account.refuse(proposal.prompt, model):
            return _Answer(None, "", asked, refused)
        try:
            answer = _Answer(self.generator.reply(proposal.messages, proposal.call), "", asked)
        except NoReply as error:
            answer = _Answer(None, str(error), asked)
        except Exception as error:
            answer = _Answer(None, f"{type(error).__name__}: {error}", asked)
        self.account.settle(proposal.prompt, answer.reply, model)
        return answer

    def _advance(self, generation: _Generation, future: Future[Any]) -> None:
        """A reply came, or an evaluation ended."""
        proposal, outcome = generation.waiting.pop(future), future.result()
        if isinstance(outcome, Evaluation):
            self._finish(generation, proposal, outcome)
        elif outcome.refused:
            generation.refused = outcome.refused
        else:
            self.archive.add_reply(
                proposal.call, proposal.generation, proposal.operator, list(proposal.parents), proposal.prompt,
                outcome.reply, outcome.asked,
            )  # fmt: skip
            self._evaluate(generation, proposal, outcome.reply.text if outcome.reply else None, outcome.reason)

    def _take_up(self, generation: _Generation, proposal: Proposal, known: Candidate) -> None:
        """Go on where an earlier run was interrupted: nothing is paid for, or run, twice."""
        if known.prompt != proposal.prompt:
            reason = f"call {known.call} had another prompt; the run cannot be taken up with this version"
            raise UserError(f"{self.archive.path}: {reason}")
        self.account.book(known.prompt, _reply_of(known), self.generator.model_of(proposal.call))
        self.account.evaluated(int(known.reply is not None if known.status == "pending" else _was_run(known)))
        if known.status == "pending":
            self._evaluate(generation, proposal, known.reply, "")
            return
        evaluation = Evaluation(
            known.name,
            {n: tuple(p) for n, p in known.runs.items()},
            known.failure,
            repeated=known.repeated,
            trace=known.trace,
        )
        if known.source and not known.repeated:
            self.evaluator.remember(known.source, evaluation)
        self._report(known, evaluation)
        generation.finished[proposal.call] = known, evaluation

    def _evaluate(self, generation: _Generation, proposal: Proposal, text: str | None, reason: str) -> None:
        try:
            program = _program(proposal, text)
        except edits.EditFailed as error:
            program, reason = None, str(error)
        if program is None:
            failure = Failure(
                FailureKind.NO_REPLY, reason or "the reply holds no program: no code block defines a class"
            )
            self._finish(generation, proposal, Evaluation("", failure=failure))
            return
        proposal.source, proposal.description = program.source, program.description
        generation.waiting[self.evaluator.submit(program.source, bar=generation.bar)] = proposal

    def _finish(self, generation: _Generation, proposal: Proposal, evaluation: Evaluation) -> None:
        self.archive.add_evaluation(proposal.call, proposal.description, proposal.source, evaluation)
        candidate = self.archive.find(proposal.call)
        assert candidate is not None
        if candidate.reply is not None and not _was_run(evaluation):
            self.account.evaluated(-1)
        self._report(candidate, evaluation)
        generation.finished[proposal.call] = candidate, evaluation

    def _report(self, candidate: Candidate, evaluation: Evaluation) -> None:
        self._fitness[candidate.call] = evaluation.fitness
        self.done += 1
        self.best = max(self.best, evaluation.fitness)
        if self.progress:
            best = self.best if math.isfinite(self.best) else None
            self.progress(Progress(self.done, self.calls, best, candidate))


def _was_run(one: Evaluation | Candidate) -> bool:
    """Whether a program got past the static check and was no repetition."""
    return not one.repeated and one.cpu_seconds > 0.0


def _reply_of(candidate: Candidate) -> Reply | None:
    """The reply that a candidate came with, as far as the account is concerned."""
    if candidate.reply is None:
        return None
    return Reply(candidate.reply, candidate.model, candidate.prompt_tokens, candidate.reply_tokens)


def _program(proposal: Proposal, text: str | None) -> replies.Program | None:
    """The program of a reply: whole, or the parent's with the reply's edits."""
    if text is None or proposal.base is None:
        return replies.read(text)
    return replies.Program(edits.apply(proposal.base, text), replies.description(text))
