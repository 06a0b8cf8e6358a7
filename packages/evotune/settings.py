"""What an evolution is told, checked before anything is spent."""

from __future__ import annotations

from dataclasses import dataclass, fields

from metabench.errors import UserError, choose

SELECTIONS = ("random", "tournament", "roulette")
NICHINGS = ("none", "map_elites", "novelty")


_KINDS = {int: "a whole number", bool: "true or false", str: "a name"}


@dataclass(frozen=True)
class Settings:
    """An evolution's numbers.

    Attributes:
        parents, offspring: size of the population, and of each generation after the first.
        elitism: whether parents compete with their offspring (plus) or not (comma).
        calls: calls to the generator in all.
        repeats: runs on each recording by which a candidate is scored.
        candidate_seconds: CPU seconds that all runs of a candidate may take together.
        seed: decides the run.
        workers: candidates evaluated at a time.
        finalists, confirmations: the best so many are scored again, on so many fresh seeds, and the best of these is the result:
            the score that selected a program is too high by the luck that selected it.
        info: whether the prompts describe the spaces.
        selection: how parents are drawn: "random", "tournament" (the best of `tournament`), "roulette" (by rank).
        niching: "none", "map_elites" (one elite for each cell of program length and vocabulary) or "novelty".
        edits: whether replies are edits of a parent (SEARCH/REPLACE blocks) instead of whole programs.
        adapt: whether mutations that succeed are drawn more often.
        race: whether a candidate that is clearly worse than all parents is given up before its last repeat.
    """

    parents: int = 4
    offspring: int = 12
    elitism: bool = True
    calls: int = 40
    repeats: int = 3
    candidate_seconds: int = 600
    seed: int = 0
    workers: int = 2
    finalists: int = 3
    confirmations: int = 10
    info: bool = False
    selection: str = "random"
    tournament: int = 3
    niching: str = "none"
    edits: bool = False
    adapt: bool = True
    race: bool = True

    def __post_init__(self) -> None:
        for option in fields(self):
            kind, value = type(option.default), getattr(self, option.name)
            if type(value) is not kind:
                raise UserError(f"evolution.{option.name} must be {_KINDS[kind]}, not {value!r}")
        for name in (
            "parents",
            "offspring",
            "repeats",
            "candidate_seconds",
            "workers",
            "finalists",
            "confirmations",
            "tournament",
        ):
            if getattr(self, name) < 1:
                raise UserError(f"evolution.{name} must be at least 1, not {getattr(self, name)}")
        if self.seed < 0:
            raise UserError(f"evolution.seed must be at least 0, not {self.seed}")
        choose(self.selection, SELECTIONS, "evolution.selection")
        choose(self.niching, NICHINGS, "evolution.niching")
        least = self.parents + self.offspring
        if self.calls < least:
            raise UserError(
                f"a budget of {self.calls} calls is smaller than one generation: {self.parents} parents and {self.offspring}"
                f" offspring need {least}; nothing was spent"
            )
