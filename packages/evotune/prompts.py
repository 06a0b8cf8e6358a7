"""What the generator is told: task, interface, an example, the form of a reply, how to vary a parent, how a candidate did.

LLaMEA puts them together: role, task, example and form of the reply for the first programs; role, task, population, parents with
their feedback, a mutation prompt and the form of the reply for all later ones.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from metabench.errors import UserError, choose
from metabench.recording import Recording
from metabench.space import Space

from .contract import ALLOWED_IMPORTS, Failure

ROLE = "You are an expert in discrete optimization and in automatic performance tuning of GPU kernels.\n"

TASK = """\
Write a Python class: an optimization algorithm for auto-tuning, where the search space is a finite set of configurations of a
kernel, each evaluation compiles and runs one configuration, and only the best configuration found within a small budget counts,
found as early as possible. Spaces have 5 to 20 parameters, some hundred to a million valid configurations, strong interactions
between parameters, and configurations that fail. A budget is some tens to some hundreds of evaluations.

The class derives from OptAlg and has `__init__(self)` without further arguments and `__call__(self, func, searchspace)`.
- `func(config)` evaluates a configuration, a tuple with one value for each parameter, in order. It returns the cost: lower
  is better, infinity if the configuration fails or is not valid. Asking again for a configuration is free, teaches nothing.
- `func.budget_spent_fraction` goes from 0 to 1. When the budget is spent, `func` raises an exception that ends the run: do
  not catch it.
- `searchspace.tune_params` is a dict of parameter names and their lists of values; `searchspace.list` is the list of all valid
  configurations, `searchspace.size` its length; `searchspace.is_param_config_valid(config)`;
  `searchspace.get_random_sample(number)` returns valid configurations;
  `searchspace.get_neighbors(config, neighbor_method=method)` returns the valid neighbours, where method is "Hamming" (one
  parameter differs), "adjacent" or "strictly-adjacent".
- Return the best configuration and its cost. Draw random numbers from `random` or `numpy.random`; do not seed them.
- Allowed imports: {imports}, and `from kernel_tuner.strategies.wrapper import OptAlg`. No files, no network, no processes.
- Spaces may have 10 configurations or parameters with one value, configurations without neighbours, and nothing that runs.
  Keep your own time below some milliseconds an evaluation.

What a good optimizer may use: an initial design that spreads out, over the space or within what is usual of GPU kernels (64
to 512 threads in a block, whole warps, powers of two; parameters whose product the valid configurations cap at 256 or 1,024
span the block, whatever they are called); a walk over neighbours with an acceptance rule and restarts; a population with
recombination; a surrogate (nearest neighbours, ridge regression on pairs of parameters, random forest, Gaussian process with
one length scale for each parameter, a slope in how unusual a configuration is whose weight the data decide, on the logarithm
of the cost compressed above the median) that ranks all unseen configurations by the expected improvement; schedules by the
spent budget.
"""

EXAMPLE = """
An example of such code, a random search:
```python
import math
import random

from kernel_tuner.strategies.wrapper import OptAlg


class RandomSearch(OptAlg):
    def __call__(self, func, searchspace):
        best, best_cost = None, math.inf
        for config in random.sample(searchspace.list, searchspace.size):
            cost = func(config)
            if best is None or cost < best_cost:
                best, best_cost = config, cost
        return best, best_cost
```
Give an excellent and novel algorithm.
"""

OUTPUT_FORMAT = """
Reply in exactly this form, with one program and a description of its idea in one line:
# Description: <description>
# Code:
```python
<code>
```
"""


@dataclass(frozen=True)
class Mutation:
    """One way to vary.

    Attributes:
        name: of the mutation, for the archive.
        kind: what the components generator takes it for: "refine", "new", "simplify", "crossover", or a group of genes to draw
            anew: "initial", "surrogate", "acquisition".
        text: the prompt.
        parents: how many programs it works on.
        weight: how often it is drawn in the beginning, relative to the others; success changes that.
    """

    name: str
    kind: str
    text: str
    parents: int = 1
    weight: float = 1.0


KINDS = ("refine", "new", "simplify", "crossover", "initial", "surrogate", "acquisition")

MUTATIONS = (
    Mutation(
        "refine",
        "refine",
        "Refine the strategy of the selected solution: keep its structure, improve its details.",
        1,
        1.0,
    ),
    Mutation(
        "constants",
        "refine",
        "Keep the selected solution as it is and only change its constants to better values.",
        1,
        1.0,
    ),
    Mutation(
        "new",
        "new",
        "Create a new algorithm that differs in structure from the selected solution and all others.",
        1,
        1.0,
    ),
    Mutation(
        "replace", "new", "Replace one component of the selected solution by another idea for the same purpose.", 1, 1.0
    ),
    Mutation(
        "simplify",
        "simplify",
        "Simplify the selected solution: remove what it does not need, keep what makes it work.",
        1,
        0.5,
    ),
    Mutation(
        "merge",
        "simplify",
        "Remove a hyperparameter or a special case of the selected solution, or let the data set it.",
        1,
        0.5,
    ),
    Mutation(
        "crossover",
        "crossover",
        "Combine the selected solutions into one algorithm with the best components of both.",
        2,
        1.0,
    ),
    Mutation(
        "graft",
        "crossover",
        "Take one component of the first selected solution and build it into the second one.",
        2,
        1.0,
    ),
    Mutation(
        "start", "initial", "Improve the first evaluations of the selected solution, to find a good one early.", 1, 0.5
    ),
    Mutation(
        "model",
        "surrogate",
        "Give the selected solution a model of the cost that ranks candidates, or a better one.",
        1,
        1.0,
    ),
    Mutation(
        "balance",
        "acquisition",
        "Change how the selected solution balances exploring and exploiting over its budget.",
        1,
        0.5,
    ),
    Mutation(
        "robust",
        "refine",
        "Make the selected solution robust: failures, tiny spaces, tiny budgets, flat costs.",
        1,
        0.5,
    ),
)
"""Twelve ways to vary, each told in one sentence."""


@dataclass(frozen=True)
class Prompts:
    """All texts of a run; fields can be replaced one by one, from a config file for instance."""

    role: str = ROLE
    task: str = TASK
    example: str = EXAMPLE
    output_format: str = OUTPUT_FORMAT
    mutations: Sequence[Mutation] = field(default=MUTATIONS)

    def changed(
        self,
        weights: Mapping[str, float] | None = None,
        mutations: Sequence[Mapping[str, Any]] = (),
        **texts: str | None,
    ) -> Prompts:
        """These prompts with some of them replaced, as a configuration says.

        Args:
            weights: of mutations, by name.
            mutations: more of them, each the fields of a `Mutation`.
            texts: fields of this class; None leaves one as it is.

        Raises:
            UserError: no such mutation, text, or kind, or no mutation with a weight is left.
        """
        for name in texts:
            choose(name, ("role", "task", "example", "output_format"), "prompt")
        try:
            known = [*self.mutations, *(Mutation(**mutation) for mutation in mutations)]
        except TypeError as error:
            raise UserError(f"a mutation is a name, a kind, a text, parents and a weight: {error}") from error
        for mutation in known:
            choose(mutation.kind, KINDS, "kind of mutation")
        for name in weights or {}:
            choose(name, (mutation.name for mutation in known), "mutation")
        weighted = tuple(replace(m, weight=float((weights or {}).get(m.name, m.weight))) for m in known)
        if not any(m.weight > 0 for m in weighted) or any(m.weight < 0 for m in weighted):
            raise UserError("weights of mutations are 0 or more, and one at least is more")
        return replace(self, mutations=weighted, **{name: text for name, text in texts.items() if text is not None})

    def task_text(self, spaces: Mapping[str, Space] | None = None) -> str:
        """The task, with a description of the spaces if there are any to tell of."""
        text = self.task.replace("{imports}", ", ".join(sorted(ALLOWED_IMPORTS - {"__future__"})))
        for name, space in (spaces or {}).items():
            text += f"\nThe space {name!r} that is tuned, as JSON:\n{json.dumps(describe(space))}\n"
        return text

    def kind_of(self, prompt: str) -> str | None:
        """What a prompt asks the components generator for; None for a first program."""
        last = max(self.mutations, key=lambda m: prompt.rfind(m.text), default=None)
        return last.kind if last is not None and last.text in prompt else None


def describe(space: Space) -> dict[str, Any]:
    """A space for the reader of a prompt, in T1's terms: parameters and values, conditions, sizes."""
    return {
        "TuningParameters": [{"Name": n, "Values": list(v)} for n, v in zip(space.names, space.values, strict=True)],
        "Conditions": [{"Expression": r.text} for r in space.restrictions],
        "CartesianSize": space.cartesian_size,
        "ValidConfigurations": len(space),
    }


def feedback(score: float | None, by_space: Mapping[str, float], failure: Failure | None) -> str:
    """How a candidate did, for its author."""
    if failure is not None:
        where = f" The failing line is line {failure.line}: `{failure.text.strip()}`" if failure.line else ""
        return f"The algorithm failed ({failure.kind}): {failure.message}.{where}"
    spaces = "; ".join(f"{name}: {value:.3f}" for name, value in by_space.items())
    scale = "0 is random search, 1 finds the optimum at once; higher is better"
    return f"The algorithm scored {score:.3f} ({scale}). By space: {spaces}."


def spaces_of(recordings: Sequence[Recording]) -> dict[str, Space]:
    """The spaces to tell of: one for each kernel, for its devices share it."""
    return {recording.kernel: recording.space for recording in recordings}
