"""The `components` generator: it answers a language model's prompts with programs put together from algorithm
components.

No key, no network, no model: a genome is drawn or varied, and written out as a program. It reads from a prompt what a
language model would obey: which variation is asked for, and which programs are the parents (their genomes stand in
their code).
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from metabench.errors import UserError

from ...prompts import Prompts
from ..base import Generator, Messages, Reply
from .genome import DESIGN, Genome, find_genomes
from .synthesis import idea, program
from .variation import crossed, novel, random_genome, refined, renewed, simplified


class ComponentsGenerator(Generator):
    """Programs synthesized from components.

    The reply is a function of seed, number of the call and prompt.

    Args:
        seed: what is drawn depends on it.
        prompts: the texts by which a mutation is recognised.
        start: programs that an evolution starts from, one or several: files that carry a genome, such as an earlier best.py,
            or "design", the zoo's default in components. They are the first replies, variations of them the other first
            ones; without any, first programs are drawn at random.

    Raises:
        UserError: no such file, or no genome in it.
    """

    edits = False

    def __init__(self, seed: int = 0, prompts: Prompts | None = None, start: str | Sequence[str] = ()) -> None:
        super().__init__(model="components")
        self.seed = seed
        self.prompts = prompts or Prompts()
        self.start = [_started_from(one) for one in ([start] if isinstance(start, str) else start)]

    @property
    def decisive(self) -> dict[str, Any]:
        """The programs that it starts from, by their genes: a file may be overwritten, or moved."""
        return {"start": [asdict(genome) for genome in self.start]} if self.start else {}

    def reply(self, messages: Messages, call: int) -> Reply:
        """A program in the form that the prompt asks for."""
        prompt = "\n".join(message["content"] for message in messages)
        rng = random.Random(f"{self.seed} {call}")
        genome = self._vary(self.prompts.kind_of(prompt), find_genomes(prompt), rng, call)
        text = f"# Description: {idea(genome)}\n# Code:\n```python\n{program(genome)}```\n"
        return Reply(
            text, self.model, prompt_tokens=0, reply_tokens=0
        )  # no model was asked: this is known, not "unknown"

    def _vary(self, kind: str | None, parents: list[Genome], rng: random.Random, call: int) -> Genome:
        if not parents and not self.start:
            return random_genome(rng, call + self.seed)
        if not parents:
            given = self.start[call % len(self.start)]
            return given if call < len(self.start) else refined(given, rng)
        parent = rng.choice(parents)
        if kind == "crossover" and len(parents) > 1:
            return crossed(parents[0], parents[-1], rng)
        if kind == "simplify":
            return simplified(parent, rng)
        if kind == "new":
            return novel(parent, rng)
        return renewed(parent, kind, rng) if kind in ("initial", "surrogate", "acquisition") else refined(parent, rng)


def _started_from(name: str) -> Genome:
    if name == "design":
        return DESIGN
    if not Path(name).is_file():
        raise UserError(f"there is no program {name} to start from; give a file, or design")
    if not (found := find_genomes(Path(name).read_text())):
        raise UserError(f"{name} carries no genome: it is no program of the components generator")
    return found[0]
