"""metaopt export RUN --to FILE: the best program of an evolution, as one file that Kernel Tuner takes."""

from __future__ import annotations

import argparse

from evotune.export import export


def main(arguments: list[str]) -> int:
    """Entry point of the verb."""
    parser = argparse.ArgumentParser(prog="metaopt export", description=__doc__)
    parser.add_argument("run", help="folder of an evolution")
    parser.add_argument("--to", required=True, metavar="FILE", help="where to write it; ends in .py")
    options = parser.parse_args(arguments)
    print(export(options.run, options.to))
    return 0
