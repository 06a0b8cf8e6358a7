"""From a genome to a complete, standalone program: the components it names, copied from `fragments`, and a class to join them."""

from __future__ import annotations

import ast
import re
import textwrap
from dataclasses import dataclass
from functools import cache
from importlib import resources
from string import Template

from ...syntax import parse
from .genome import Genome

_MODULES = (
    "table",
    "shape",
    "initial",
    "schedule",
    "walk",
    "population",
    "nearest",
    "ridge",
    "forest",
    "gaussian",
    "acquisition",
)
_IMPORTS = {
    "math": "import math",
    "random": "import random",
    "Callable": "from collections.abc import Callable",
    "Any": "from typing import Any",
}
_MODELS = {
    "nearest": "NearestNeighbors(table, count={neighbors})",
    "ridge": "PairwiseRidge(table, strength={ridge})",
    "forest": "Forest(table, rng, trees={trees}, leaf={leaf})",
    "gaussian": "GaussianProcess(table, growth={growth}, prior='{prior}')",
}
_CONSTANTS = {
    "TEMPERATURE": "temperature",
    "DIFFERENTIAL": "differential",
    "KAPPA": "kappa",
    "MARGIN": "margin",
    "LENGTH": "length",
}

_WORDS: dict[str, dict[str, str]] = {
    "initial": {
        "random": "a random design",
        "spread": "a maximin design",
        "lattice": "a low-discrepancy design",
        "centre": "the centre and around it",
        "usual": "a maximin design within what is usual of GPU kernels",
    },
    "walk": {
        "better": "greedy local search",
        "annealing": "simulated annealing",
        "threshold": "threshold accepting",
        "always": "tabu search",
    },
    "population": {
        "uniform": "a genetic algorithm",
        "onepoint": "a one-point genetic algorithm",
        "differential": "differential evolution",
    },
    "surrogate": {
        "nearest": "a nearest-neighbour surrogate",
        "ridge": "a pairwise ridge surrogate",
        "forest": "a random-forest surrogate",
        "gaussian": "a Gaussian process",
    },
    "acquisition": {"mean": "predicted mean", "bound": "lower confidence bound", "improvement": "expected improvement"},
}
_SHORT = {
    "better": "Greedy",
    "annealing": "Annealing",
    "threshold": "Threshold",
    "always": "Tabu",
    "uniform": "Genetic",
    "onepoint": "OnePoint",
    "differential": "Differential",
    "nearest": "Neighbor",
    "ridge": "Ridge",
    "forest": "Forest",
    "gaussian": "Gaussian",
}

_PROGRAM = Template('''\
"""$idea"""
$line
$imports

try:
    from kernel_tuner.strategies.wrapper import OptAlg
except ImportError:  # the program also runs where Kernel Tuner is not installed

    class OptAlg:
        def __init__(self):
            self.costfunc_kwargs = {"scaling": False, "snap": False}


$parts


class $name(OptAlg):
    """$idea"""

    def __call__(self, func, searchspace):
        rng = np.random.default_rng(random.getrandbits(64))
        table = Table(searchspace, rng)
        log = Log(func, table)
        for row in initial_$initial(table, $initial_count, rng):
            log.measure(row)
            if len(log.rows) > 1 and func.budget_spent_fraction > 0.25:
                break
$set_up
        while log.unseen.any():
            heat = schedule_$schedule(func.budget_spent_fraction)
$step
        return log.best()
''')


@dataclass(frozen=True)
class Part:
    """One definition of a fragment module: its source and the names it uses."""

    name: str
    source: str
    uses: frozenset[str]


@cache
def parts() -> dict[str, Part]:
    """All definitions of the fragment modules, by name, in the order in which a program lists them."""
    found: dict[str, Part] = {}
    for module in _MODULES:
        text = (resources.files(__package__) / "fragments" / f"{module}.py").read_text()
        for node in parse(text).body:
            name = _defined(node)
            if name:
                lines = text.splitlines()[
                    node.lineno - 1 : node.end_lineno
                ]  # whole lines, for the comment beside a constant
                found[name] = Part(name, "\n".join(lines), _names(node) - {name})
    return found


def program(genome: Genome) -> str:
    """The complete source of the program that a genome describes."""
    body = _PROGRAM.substitute(
        idea=textwrap.fill(idea(genome), 110, subsequent_indent="    "), line=genome.line(), name=class_name(genome),
        initial=genome.initial, initial_count=genome.initial_count,
        schedule=genome.schedule if genome.is_used("schedule") else "constant",
        set_up=_set_up(genome), step=_step(genome), imports="$imports", parts="$parts",
    )  # fmt: skip
    needed = _closure(_names(parse(body.replace("$imports", "").replace("$parts", ""))))
    chosen = [part for name, part in parts().items() if name in needed]
    constants = "\n".join(_constant(part, genome) for part in chosen if part.name.isupper())
    definitions = "\n\n\n".join(part.source for part in chosen if not part.name.isupper())
    return body.replace("$imports", _imports(needed)).replace("$parts", f"{constants}\n\n\n{definitions}")


def class_name(genome: Genome) -> str:
    """A name that tells the components, such as SpreadAnnealingGaussian."""
    rules = (genome.walk, genome.population, genome.surrogate)
    return genome.initial.capitalize() + "".join(_SHORT[rule] for rule in rules if rule != "none")


def idea(genome: Genome) -> str:
    """One sentence: what the program does."""
    searches = [
        _WORDS[family][getattr(genome, family)] for family in ("walk", "population") if family in genome.components()
    ]
    start = f"Starts from {_WORDS['initial'][genome.initial]}"
    if genome.surrogate == "none":
        return f"{start}, then goes on by {' and '.join(searches)}."
    model, rule = _WORDS["surrogate"][genome.surrogate], _WORDS["acquisition"][genome.acquisition]
    if genome.is_used("prior") and genome.prior == "usual":
        model += " that expects what is usual of GPU kernels"
    if not searches:
        return f"{start}, then measures the unseen configuration that {model} ranks first by {rule}."
    pool = "all unseen configurations in turn with the moves of" if genome.scope == "space" else "the moves of"
    return f"{start}, then lets {model} rank, by {rule}, {pool} {' and '.join(searches)}."


def _set_up(genome: Genome) -> str:
    lines: list[str] = []
    if genome.walk != "none":
        lines += [
            f'walk = Walk(table, rng, "{genome.neighborhood}", accepts_{genome.walk},'
            f' patience={genome.patience}, restart="{genome.restart}")',
            "walk.start(log)",
        ]
    if genome.population != "none":
        lines += [
            "population = Population(",
            f"    table, rng, size={genome.size}, crossover=crossover_{genome.population}, mutation={genome.mutation},",
            f"    tournament={genome.tournament}, ageing={genome.ageing},",
            ")",
            "for row, cost in zip(log.rows, log.costs):",
            "    population.learn(row, cost)",
        ]
    if genome.surrogate != "none":
        lines.append("model = " + _MODELS[genome.surrogate].format_map(vars(genome)))
    return _indented(lines, 8)


def _step(genome: Genome) -> str:
    lines = [
        f"if rng.random() < {genome.explore}:",
        "    pool = rng.permutation(np.flatnonzero(log.unseen))[:1]",
        "else:",
    ]
    lines += [f"    {line}" for line in _pool(genome)]
    if genome.surrogate != "none":
        lines += [
            "model.learn(log)",
            "mean, spread = model.predict(pool)",
            f"row = pick(pool, acquire_{genome.acquisition}(mean, spread, targets(log.costs).min(), heat))",
        ]
    else:
        lines.append("row = int(pool[0])")
    lines.append("cost = log.measure(row)")
    lines += ["walk.learn(row, cost, log, heat)"] * (genome.walk != "none")
    lines += ["population.learn(row, cost)"] * (genome.population != "none")
    return _indented(lines, 12)


def _pool(genome: Genome) -> list[str]:
    """Lines that set `pool` to what may be measured next."""
    sources = ["walk.propose(log)"] * (genome.walk != "none") + ["population.propose(log)"] * (
        genome.population != "none"
    )
    if genome.surrogate != "none" and genome.scope == "space":
        unseen = "np.flatnonzero(log.unseen)"
        everything = f"rng.permutation({unseen})[:1000]" if genome.surrogate == "ridge" else unseen
        sources = [everything, *sources] if sources else [everything]
    if len(sources) == 1:
        return [f"pool = {sources[0]}"]
    if genome.surrogate != "none" and genome.scope == "pool":
        return [f"pool = np.concatenate([{', '.join(sources)}])"]
    lines = []
    for k, source in enumerate(sources):
        test = f"if len(log.rows) % {len(sources)} == {k}:" if k < len(sources) - 1 else "else:"
        lines += [test if k == 0 or test == "else:" else f"el{test}", f"    pool = {source}"]
    return lines


def _closure(names: set[str] | frozenset[str]) -> set[str]:
    """The names and all that their parts name in turn."""
    found, new = set(names), set(names)
    while new:
        new = {use for name in new if name in parts() for use in parts()[name].uses} - found
        found |= new
    return found


def _imports(needed: set[str]) -> str:
    standard = [line for name, line in _IMPORTS.items() if name in needed]
    return "\n".join(["from __future__ import annotations", "", *standard, "", "import numpy as np"])


def _constant(part: Part, genome: Genome) -> str:
    if part.name not in _CONSTANTS:
        return part.source
    return re.sub(r"= *[\d.e-]+", f"= {getattr(genome, _CONSTANTS[part.name])}", part.source, count=1)


def _defined(node: ast.stmt) -> str:
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return node.name
    if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
        return node.targets[0].id
    return ""


def _names(node: ast.AST) -> frozenset[str]:
    return frozenset(n.id for n in ast.walk(node) if isinstance(n, ast.Name))


def _indented(lines: list[str], by: int) -> str:
    return "\n".join(" " * by + line for line in lines)
