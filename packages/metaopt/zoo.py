"""metaopt zoo list | show | compare: the optimizers that can be named."""

from __future__ import annotations

import argparse
import ast
import inspect

from evotune import zoo
from metabench import registry, results
from metabench.errors import UserError, choose

RANKED_BY = "all 12"


def main(arguments: list[str]) -> int:
    """Entry point of the verb."""
    parser = argparse.ArgumentParser(prog="metaopt zoo", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("list", help="names of the optimizers")
    commands.add_parser("show", help="what one is").add_argument("name")
    compared = commands.add_parser("compare", help="scores of some beside each other, of all by default")
    compared.add_argument("names", nargs="*")
    options = parser.parse_args(arguments)
    if options.command == "compare":
        print(compare(options.names or zoo.names()))
    else:
        print(listing() if options.command == "list" else describe(options.name))
    return 0


def listing() -> str:
    """The zoo with each one's idea, then the names of the strategies of other packages."""
    entries = [zoo.entry(name) for name in zoo.names()]
    mark = {zoo.DEFAULT: " (default)"}
    rows = [[e.name + mark.get(e.name, ""), f"  {e.provenance.get('kind', '')}: {e.idea}"] for e in entries]
    width = max(len(row[0]) for row in rows)
    own = "\n".join(f"{name.ljust(width)}{text}" for name, text in rows)
    others = [name for name in registry.available() if name not in zoo.names()]
    return f"{own}\n\nKernel Tuner's strategies, and short names for them: {', '.join(others)}"


def describe(name: str) -> str:
    """Idea, provenance and scores of one of the zoo's; the documentation of any other."""
    optimizer = registry.make(name)()
    if name not in zoo.names():
        text = inspect.getdoc(optimizer) or "no documentation"
        return f"{name}\n{'=' * len(name)}\n{text}"
    entry = zoo.entry(name)
    lines = [
        name,
        "=" * len(name),
        ast.get_docstring(ast.parse(entry.path.read_text())) or entry.idea,
        "",
        f"file: {entry.path}",
    ]
    lines += [f"{key}: {value}" for key, value in entry.provenance.items()]
    rows = [[split, *_written(score)] for split, score in entry.scores.items()]
    table = results.text_table(["spaces", "P", "95 % interval", "runs a space"], rows)
    return "\n".join([*lines, "", table if rows else "scores: not measured yet"])


def compare(names: list[str]) -> str:
    """Scores on every split, best first; whether two differ, their intervals say.

    Raises:
        UserError: a name that is none of the zoo's, or nothing measured.
    """
    entries = [zoo.entry(choose(name, zoo.names(), "optimizer of the zoo")) for name in names]
    splits = list(dict.fromkeys(split for entry in entries for split in entry.scores))
    if not splits:
        raise UserError(f"no scores are kept of {', '.join(names)}; `metaopt score` measures them")
    ranked = sorted(entries, key=lambda entry: -entry.scores.get(RANKED_BY, (-10.0,))[0])
    rows = [[e.name, *(" ".join(_written(e.scores[s])[:2]) if s in e.scores else "-" for s in splits)] for e in ranked]
    return results.text_table(["P, 95 % interval", *splits], rows)


def _written(score: tuple[float, float, float, int]) -> list[str]:
    mean, low, high, runs = score
    return [f"{mean:.3f}", f"[{low:.3f}, {high:.3f}]", str(runs)]
