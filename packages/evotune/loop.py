"""LLaMEA's loop with its seams closed.

What is shielded here: prints; pickles of the run; the joblib time-out that ends a run (there is nothing slow left to
time out); a last generation that overshoots the budget; an array of parents that cannot be added to a list, which
fails any crossover; the name of the first class in a reply taken for the optimizer's, and `eval` of a reply's
"Space:" block (replies are read by `evotune.replies` alone).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ._llamea import LLM, LLaMEA, Operator, Solution
from .archive import Candidate
from .evaluate import Evaluation
from .prompts import Prompts

if TYPE_CHECKING:
    from .evolve import Settings

_log = logging.getLogger(__name__)

Assess = Callable[[Sequence["Proposal"]], Sequence[tuple[Candidate, Evaluation]]]


@dataclass
class Proposal:
    """A program to be asked for, then the program.

    Attributes:
        call: number of the call, from 0; generation, from 0.
        messages: the conversation to send.
        operator, parents: kind of mutation and the calls of the parents; "" and none in the first generation.
    """

    call: int
    generation: int
    messages: list[dict[str, str]]
    operator: str = ""
    parents: tuple[int, ...] = ()
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

    def sample_solution(self, session_messages: list[dict[str, str]], *_: Any, **__: Any) -> Solution:
        """A solution without code yet, with the prompt that will bring it."""
        solution = Solution()
        proposal = Proposal(self.calls, 0, list(session_messages), self.operator, self.parents)
        solution.add_metadata("proposal", proposal)
        self.calls += 1
        return solution


class Loop(LLaMEA):
    """One evolution.

    Args:
        assess: fetches and scores a generation.
        settings: see `evotune.evolve.Settings`.
        task: the task prompt, rendered.
    """

    def __init__(self, assess: Assess, settings: Settings, prompts: Prompts, task: str) -> None:
        self._assess = assess
        self._kinds: dict[str, str] = {}
        self._call_of: dict[str, int] = {}
        super().__init__(
            f=None, llm=_Notebook(), n_parents=settings.parents, n_offspring=settings.offspring, role_prompt=prompts.role,
            task_prompt=task, example_prompt=prompts.example, output_format_prompt=prompts.output_format,
            elitism=settings.elitism, operators=self._operators(prompts, settings.parents), budget=settings.calls,
            max_workers=1, parallel_backend="sequential", eval_timeout=_Never(), log=False, evaluate_population=True,
        )  # fmt: skip

    def _operators(self, prompts: Prompts, parents: int) -> list[Operator]:
        operators = []
        for mutation in prompts.mutations:
            if mutation.weight > 0 and mutation.parents <= parents:  # LLaMEA takes a weight of 0 for 1
                operator = Operator(f"{mutation.text}\n", mutation.kind, mutation.weight, mutation.parents)
                self._kinds[operator.id] = mutation.kind
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
        self.llm.operator = self._kinds[operator.id]
        # LLaMEA copies the individual that it varies, under a new id that remembers the old one.
        originals = [one.id if one.id in self._call_of else one.parent_ids[0] for one in individuals]
        self.llm.parents = tuple(self._call_of[one] for one in originals)
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
        for solution, (candidate, evaluation) in zip(new_population, self._assess(proposals), strict=True):
            solution.code, solution.description = candidate.source, candidate.description
            solution.name = candidate.name or "(no program)"
            solution.set_scores(evaluation.fitness, evaluation.feedback())
            self._call_of[solution.id] = candidate.call
        return new_population
