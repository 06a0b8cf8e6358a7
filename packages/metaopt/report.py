"""metaopt report RUN: the page about an evolution, finished or under way: lineage, best over calls, failures, cost."""

from __future__ import annotations

import argparse

from evotune.lineage import report


def main(arguments: list[str]) -> int:
    """Entry point of the verb."""
    parser = argparse.ArgumentParser(prog="metaopt report", description=__doc__)
    parser.add_argument("run", help="folder of an evolution")
    print(report(parser.parse_args(arguments).run))
    return 0
