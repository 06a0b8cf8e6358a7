"""`metaopt VERB ...`: finds the verb's module and hands over.

Runs are Hydra apps (overrides, -m sweeps, --cfg job, --help); looking and moving verbs are plain argparse.
"""

from __future__ import annotations

import importlib
import os
import sys

from metabench.errors import UserError, choose

RUNS = {
    "demo": "evolve a tuner, score it, tune the learned optimizer's step kernel with it, take steps",
    "score": "optimizers x recorded spaces -> table, CSV/parquet, figure",
    "evolve": "generator + spaces -> run folder with archive and best optimizer",
    "tune": "kernel + optimizer -> tuned entry and T4, measured on this machine",
    "record": "kernel -> a whole recording, measured on this machine",
    "bench": "step time and memory of learned optimizers against torch.optim",
    "train": "task + optimizer -> loss curves beside AdamW's, against step and against time",
    "metatrain": "families of tasks -> meta-weights of your own",
}
LOOKS = {
    "spaces": "list | show NAME: recordings and search spaces",
    "zoo": "list | show NAME | compare [NAME ...]: optimizers and their scores",
    "report": "RUN: the page about an evolution: lineage, best over calls, failures by kind, cost",
    "export": "RUN --to FILE: the best program of an evolution as a Kernel Tuner strategy in one file",
}


def usage() -> str:
    """The help text."""
    lines = [f"  {name:9} {text}" for name, text in (RUNS | LOOKS).items()]
    return "\n".join(
        [
            "usage: metaopt VERB [KEY=VALUE ...]",
            "",
            *lines,
            "",
            "metaopt VERB --help shows a verb's options; runs take Hydra overrides, and -m sweeps over them.",
        ]
    )


def main(argv: list[str] | None = None) -> int:
    """Run one verb; a mistake of the reader's is one sentence on stderr and exit code 2."""
    arguments = sys.argv[1:] if argv is None else argv
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        print(usage())
        return 0
    try:
        verb = choose(arguments[0], RUNS | LOOKS, "verb")
        module = importlib.import_module(f"metaopt.{verb}")
        if verb in LOOKS:
            return module.main(arguments[1:])
        from . import hydra_app

        return hydra_app.launch(verb, module.run, arguments[1:])
    except UserError as error:
        print(f"metaopt: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:  # `metaopt zoo list | head`: the reader has seen enough
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115, PTH123 - or the interpreter complains as it flushes on its way out
        return 0
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] in ("metabench", "evotune", "lopt", "metaopt"):
            raise
        print(
            f"metaopt: {arguments[0]} needs the package {error.name!r}: pip install 'metaopt-toolkit[all]'",
            file=sys.stderr,
        )
        return 2


if __name__ == "__main__":
    sys.exit(main())
