"""A verb as a Hydra app: where its configuration lies, where its results go, how its errors are shown."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from pathlib import Path

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf

from metabench import results
from metabench.errors import UserError
from metabench.files import read_json, write_json

Verb = Callable[[DictConfig, Path], str]
"""A run: (configuration, output folder) -> the last line, without the folder."""


_DONE = "done.json"
"""In the folder of a run that ended well: its last line, and its configuration."""


def configs() -> Path:
    """The Hydra tree: at the top of a checkout, inside the installed package otherwise."""
    here = Path(__file__).resolve().parent
    installed, checkout = here / "_configs", here.parents[1] / "configs"
    return installed if installed.is_dir() else checkout


def launch(verb: str, run: Verb, arguments: list[str]) -> int:
    """Run a verb under Hydra with the given command-line arguments; returns the exit code."""

    def job(config: DictConfig) -> None:
        _job(verb, run, config)

    sys.argv = [f"metaopt {verb}", *map(_spelled_out, arguments)]
    hydra.main(version_base="1.3", config_path=str(configs()), config_name=verb)(job)()
    return 0


def _spelled_out(argument: str) -> str:
    """`jail=true` for `jail.enabled=true`: a switch that has settings of its own, which Hydra would put in their place."""
    return argument.replace("jail=", "jail.enabled=", 1) if argument.startswith("jail=") else argument


def _job(verb: str, run: Verb, config: DictConfig) -> None:
    state = HydraConfig.get()
    out = Path(state.runtime.output_dir).resolve()
    try:
        told = OmegaConf.to_container(config, resolve=True)
        done = out / _DONE
        if done.is_file() and (before := read_json(done))["config"] == told:  # a sweep that is called again
            print(f"{out}  {before['line']} (finished before)")
            return
        results.write_provenance(out, f"metaopt {verb}", told)
        line = run(config, out)
        write_json(done, {"line": line, "config": told})
        print(f"{out}  {line}")
    except Exception as error:
        if state.mode == RunMode.MULTIRUN:
            # The other jobs of the sweep go on; Hydra makes the exit code, this job's log keeps the reason.
            logging.getLogger(__name__).exception("job %s failed", state.job.num)
            print(f"metaopt {verb} {' '.join(state.overrides.task)}: {error}", file=sys.stderr)
            raise
        if not isinstance(error, UserError):
            raise
        print(f"metaopt: {error}", file=sys.stderr)
        raise SystemExit(2) from error
