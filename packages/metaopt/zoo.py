"""metaopt zoo list | show: the optimizers that can be named."""

from __future__ import annotations

import argparse
import ast
import inspect
import json

from evotune import zoo
from metabench import registry, results


def main(arguments: list[str]) -> int:
    """Entry point of the verb."""
    parser = argparse.ArgumentParser(prog="metaopt zoo", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("list", help="names of the optimizers")
    commands.add_parser("show", help="what one is").add_argument("name")
    options = parser.parse_args(arguments)
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
    rows = [[split, json.dumps(score, default=str)] for split, score in entry.scores.items()]
    return "\n".join([*lines, *([results.text_table(["scores", ""], rows)] if rows else ["scores: not measured yet"])])
