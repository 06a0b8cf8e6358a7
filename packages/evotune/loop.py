"""LLaMEA's loop with its seams closed.

What is shielded here: prints; pickles of the run; the joblib time-out that ends a run (there is nothing slow left to
time out); a last generation that overshoots the budget; an array of parents that cannot be added to a list, which
fails any crossover; the name of the first class in a reply taken for the optimizer's, and `eval` of a reply's
"Space:" block (replies are read by `evotune.replies` alone).
"""

from __future__ import annotations

import difflib
import logging
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ._llamea import LLM, LLaMEA, Operator, Solution
from .archive import Candidate
from .evaluate import Evaluation
from .prompts import Prompts

if TYPE_CHECKING:
    from .settings import Settings

_log = logging.getLogger(__name__)

Assess = Callable[[Sequence["Proposal"], float | None], Sequence[tuple[Candidate, Evaluation]]]


@dataclass
class Proposal:
    """A program to be asked for, then the program.

    Attributes:
        call: number of the call, from 0; generation, from 0.
        messages: the conversation to send.
        operator, parents: name of the mutation and the calls of the parents; "" and none in the first generation.
        base: the source that the reply edits; None where the reply is a whole program.
    """

    call: int
    generation: int
    messages: list[dict[str, str]]
    operator: str = ""
    parents: tuple[int, ...] = ()
    base: str | None = None
    source: str = ""
    description: str = ""

    @property
    def prompt(self) -> str:
        """The conversation as one text."""
        return "\n".join(message["content"] for message in self.messages)


class _Never:
    """The time-out that LLaMEA adds 15 seconds to: none, for joblib warns of one that it cannot keep in this process."""

    def __add__(self, seconds: float) -> None:
        return None


class _Notebook(LLM):
    """In the place of LLaMEA's language model: it notes prompts down."""

    def __init__(self) -> None:
        super().__init__(api_key="", model="notebook")
        self.calls = 0
        self.operator, self.parents = "", ()

    def query(self, session_messages: list[dict[str, str]]) -> str:
        """Never called: `sample_solution` is what LLaMEA uses."""
        raise NotImplementedError("prompts are collected and sent by the generation")

    def sample_solution(
        self,
        session_messages: list[dict[str, str]],
        *_: Any,
        base_code: str | None = None,
        diff_mode: bool = False,
        **__: Any,
    ) -> Solution:
        """A solution without code yet, with the prompt that will bring it."""
        solution = Solution()
        base = base_code if diff_mode else None
        proposal = Proposal(self.calls, 0, list(session_messages), self.operator, self.parents, base)
        solution.add_metadata("proposal", proposal)
        self.calls += 1
        return solution


class _Odds:
    """How often each mutation is drawn: its weight, times how often it lately made something better than its parents."""

    PRIOR, MEMORY = 0.25, 0.9

    def __init__(self, operators: list[Operator], adapt: bool) -> None:
        self._base = {operator.id: operator.weight for operator in operators}
        self._tries = dict.fromkeys(self._base, 0.0)
        self._wins = dict.fromkeys(self._base, 0.0)
        self._operators, self._adapt = operators, adapt

    def update(self, outcomes: list[tuple[str, bool]]) -> None:
        """Take in a generation: for every offspring its mutation's id, and whether it beat its parents."""
        if not self._adapt or not outcomes:
            return
        for counts in (self._tries, self._wins):
            for key in counts:
                counts[key] *= self.MEMORY
        for key, won in outcomes:
            self._tries[key] += 1.0
            self._wins[key] += won
        for operator in self._operators:
            rate = (self._wins[operator.id] + 2.0 * self.PRIOR) / (self._tries[operator.id] + 2.0)
            operator.weight = self._base[operator.id] * rate / self.PRIOR


class Loop(LLaMEA):
    """One evolution.

    Args:
        assess: fetches and scores a generation, given a score below which a candidate does not matter.
        settings: see `evotune.settings.Settings`.
        task: the task prompt, rendered.
    """

    def __init__(self, assess: Assess, settings: Settings, prompts: Prompts, task: str) -> None:
        self._assess, self._settings = assess, settings
        self._names: dict[str, str] = {}
        self._candidates: dict[str, tuple[Candidate, Evaluation]] = {}
        operators = self._make_operators(prompts, settings.parents)
        super().__init__(
            f=None, llm=_Notebook(), n_parents=settings.parents, n_offspring=settings.offspring, role_prompt=prompts.role,
            task_prompt=task, example_prompt=prompts.example, output_format_prompt=prompts.output_format,
            elitism=settings.elitism, operators=operators, budget=settings.calls, max_workers=1,
            parallel_backend="sequential", eval_timeout=_Never(), log=False, evaluate_population=True,
            parent_selection=settings.selection, tournament_size=settings.tournament, diff_mode=settings.edits,
            niching=None if settings.niching == "none" else settings.niching, distance_metric=_distance,
        )  # fmt: skip
        self._odds = _Odds(operators, settings.adapt)

    def _make_operators(self, prompts: Prompts, parents: int) -> list[Operator]:
        operators = []
        for mutation in prompts.mutations:
            if mutation.weight > 0 and mutation.parents <= parents:  # LLaMEA takes a weight of 0 for 1
                operator = Operator(f"{mutation.text}\n", mutation.name, mutation.weight, mutation.parents)
                self._names[operator.id] = mutation.name
                operators.append(operator)
        return operators

    def logevent(self, event: str) -> None:
        """Log, where LLaMEA prints."""
        _log.debug("%s", event)

    def pickle_archive(self) -> None:
        """Nothing: the archive is SQLite, and written as results come."""

    def initialize_single(self) -> Solution:
        """A first program."""
        content = self.role_prompt + self.task_prompt + self.example_prompt + self.output_format_prompt
        self.llm.operator, self.llm.parents = "", ()
        return self.llm.sample_solution([{"role": "user", "content": content}])

    def construct_prompt(self, individuals: list[Solution], operator: Operator | None = None) -> list[dict[str, str]]:
        """LLaMEA's prompt, and a note of whose it is."""
        assert operator is not None
        self.llm.operator = self._names[operator.id]
        # LLaMEA copies the individual that it varies, under a new id that remembers the old one.
        originals = [one.id if one.id in self._candidates else one.parent_ids[0] for one in individuals]
        self.llm.parents = tuple(self._candidates[one][0].call for one in originals)
        return super().construct_prompt(individuals, operator)

    def _select_parents(self, count: int | None = None) -> list[Solution]:
        """As many as the budget still allows, in a list."""
        left = self.budget - len(self.run_history)
        return list(super()._select_parents(min(self.n_offspring, left) if count is None else count))

    def evaluate_population_fitness(self, new_population: list[Solution]) -> list[Solution]:
        """Programs and scores for a generation of prompts."""
        proposals: list[Proposal] = [solution.metadata["proposal"] for solution in new_population]
        for proposal in proposals:
            proposal.generation = self.generation
        assessed = self._assess(proposals, self._bar())
        for solution, (candidate, evaluation) in zip(new_population, assessed, strict=True):
            solution.code, solution.description = candidate.source, candidate.description
            solution.name = candidate.name or "(no program)"
            solution.set_scores(evaluation.fitness, evaluation.feedback())
            self._candidates[solution.id] = candidate, evaluation
        self._odds.update([self._outcome(solution) for solution in new_population if solution.operator_id])
        return new_population

    def _bar(self) -> float | None:
        """The score that an offspring must reach to survive; None where there is none, or scores are not all that counts."""
        settings = self._settings
        if self.generation == 0 or not (settings.race and settings.elitism and settings.niching == "none"):
            return None
        worst = min(self._candidates[solution.id][1].fitness for solution in self.population)
        return worst if math.isfinite(worst) else None

    def _outcome(self, solution: Solution) -> tuple[str, bool]:
        """An offspring's mutation, and whether it beat its parents."""
        candidate, evaluation = self._candidates[solution.id]
        scores = {c.call: e.fitness for c, e in self._candidates.values()}
        return solution.operator_id, evaluation.fitness > max(scores[call] for call in candidate.parents)


def _distance(one: Solution, other: Solution) -> float:
    """How different two programs are, 0 to 1, for niching; a program that failed is not interesting for being different."""
    if not (math.isfinite(one.fitness) and math.isfinite(other.fitness)):
        return 0.0
    return 1.0 - difflib.SequenceMatcher(None, one.code.split(), other.code.split(), autojunk=False).quick_ratio()
