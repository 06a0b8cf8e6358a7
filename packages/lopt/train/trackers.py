"""Where the numbers of a run go: a file always, and TensorBoard, Weights & Biases or MLflow if asked for.

One protocol, so that a training knows none of them. Each is imported when it is asked for and not before.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

from ..metatrain import checkpoint

Values = Mapping[str, float]


class Tracker(Protocol):
    """What a training tells: settings once, numbers by step, the end."""

    def log(self, step: int, values: Values) -> None: ...

    def close(self) -> None: ...


class Files:
    """`curve.csv` in the run's folder, written whole at every checkpoint and at the end."""

    def __init__(self, folder: Path, rows: list[dict[str, Any]] | None = None) -> None:
        self.folder, self.rows = folder, rows or []

    def log(self, step: int, values: Values) -> None:
        self.rows.append({"step": step, **values})

    def flush(self) -> None:
        if self.rows:
            checkpoint.save_curve(self.folder, self.rows)

    def close(self) -> None:
        self.flush()


class TensorBoard:
    """Scalars by step."""

    def __init__(self, folder: Path, name: str, settings: Mapping[str, Any]) -> None:
        self.writer = _needed("torch.utils.tensorboard", "tensorboard").SummaryWriter(str(folder / "tensorboard"))
        self.writer.add_text("settings", str(dict(settings)))

    def log(self, step: int, values: Values) -> None:
        for key, value in values.items():
            self.writer.add_scalar(key, value, step)

    def close(self) -> None:
        self.writer.close()


class WandB:
    """A run of Weights & Biases; its own environment variables say where to."""

    def __init__(self, folder: Path, name: str, settings: Mapping[str, Any]) -> None:
        self.run = _needed("wandb", "wandb").init(dir=str(folder), name=name, config=dict(settings))

    def log(self, step: int, values: Values) -> None:
        self.run.log(dict(values), step=step)

    def close(self) -> None:
        self.run.finish()


class MLflow:
    """A run of MLflow; MLFLOW_TRACKING_URI says where to."""

    def __init__(self, folder: Path, name: str, settings: Mapping[str, Any]) -> None:
        self.mlflow = _needed("mlflow", "mlflow")
        self.mlflow.start_run(run_name=name)
        self.mlflow.log_params(dict(settings))

    def log(self, step: int, values: Values) -> None:
        self.mlflow.log_metrics(dict(values), step=step)

    def close(self) -> None:
        self.mlflow.end_run()


TRACKERS: dict[str, Callable[[Path, str, Mapping[str, Any]], Tracker]] = {
    "tensorboard": TensorBoard,
    "wandb": WandB,
    "mlflow": MLflow,
}


def open_tracker(kind: str, folder: Path, name: str, settings: Mapping[str, Any]) -> Tracker:
    """A tracker by name.

    Raises:
        ValueError: an unknown name. ModuleNotFoundError: its package is not installed.
    """
    if kind not in TRACKERS:
        raise ValueError(f"unknown tracker {kind!r}; allowed: {', '.join(TRACKERS)}")
    return TRACKERS[kind](folder, name, settings)


def _needed(module: str, package: str) -> Any:
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"this tracker needs the package {package!r}: pip install {package}", name=package
        ) from error
