"""metaopt zoo list | show: the optimizers that can be named."""

from __future__ import annotations

import argparse
import inspect

from metabench import registry


def main(arguments: list[str]) -> int:
    """Entry point of the verb."""
    parser = argparse.ArgumentParser(prog="metaopt zoo", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("list", help="names of the optimizers")
    commands.add_parser("show", help="what one is").add_argument("name")
    options = parser.parse_args(arguments)
    if options.command == "list":
        print("\n".join(registry.available()))
    else:
        print(describe(options.name))
    return 0


def describe(name: str) -> str:
    """The optimizer's own documentation."""
    optimizer = registry.make(name)()
    text = inspect.getdoc(inspect.getmodule(type(optimizer))) or inspect.getdoc(optimizer) or "no documentation"
    return f"{name}\n{'=' * len(name)}\n{text}"
