"""transfer=[A100,A4000]: recordings of the same kernel from elsewhere, for optimizers that can use them.

A source is the device of a recording of the kernel that is tuned or scored, a recording's name (KERNEL/DEVICE), or the path of a
recording. They are joined by configuration, never by row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from evotune.zoo.gp_transfer import GPTransfer, joined
from metabench import catalog
from metabench.errors import UserError, choose
from metabench.recording import Recording
from metabench.searchspace import Searchspace
from metabench.space import Space

USES_SOURCES = "gp_transfer"
SUFFIXES = (".json", ".json.gz")


@dataclass(frozen=True)
class Informed:
    """A factory of gp_transfer with the sources of every kernel that is scored; it can be sent to another process.

    Attributes:
        sources: of all kernels; a run is given those that have its space's parameters.
        options: (keyword, value) pairs of `GPTransfer`.
    """

    sources: tuple[Recording, ...]
    options: tuple[tuple[str, Any], ...] = ()

    def __call__(self) -> Callable[..., Any]:
        """An optimizer for one run; it holds nothing of a run."""
        return self._run

    def _run(self, func: Any, searchspace: Any) -> Any:
        names = sorted(searchspace.param_names)
        known = [source for source in self.sources if sorted(source.space.names) == names]
        return GPTransfer(known, **dict(self.options))(func, searchspace)


def sources_of(
    entries: Iterable[str], kernel: str, space: Space, target: str | None, root: Path | str | None = None
) -> list[Recording]:
    """The recordings that the entries name, for one kernel.

    Args:
        space: of what is to be tuned; each source must have its parameters, and configurations in common.
        target: device that is tuned or scored, which is refused as a source: its recording holds the answer.
        root: a benchmark hub's folder; None for the bundled recordings.

    Raises:
        UserError: an unknown device (the known ones are listed), the target itself, a recording of another kernel, or nothing in
            common.
    """
    searchspace = Searchspace(space)
    sources = [_read(str(entry), kernel, root) for entry in entries]
    for source in sources:
        if target is not None and source.name == f"{kernel}/{target}":
            raise UserError(
                f"transfer from {source.name} to itself would give the answer away; leave it out of transfer"
            )
        _check(source, kernel, searchspace)
    return sources


def informed(
    optimizers: Mapping[str, Any], entries: Sequence[str], recordings: Sequence[Recording], root: Path | str | None
) -> dict[str, Any]:
    """The optimizers to score, those called gp_transfer with their sources.

    Raises:
        UserError: as `sources_of`; or none of the optimizers uses sources.
    """
    users = [label for label, one in optimizers.items() if getattr(one, "name", "") == USES_SOURCES]
    if not entries:
        return dict(optimizers)
    if not users:
        raise UserError(f"transfer is for optimizers that use it, and none does: add {USES_SOURCES} to optimizers")
    several = len({recording.kernel for recording in recordings}) > 1
    sources: dict[str, Recording] = {}
    for recording in recordings:
        own = [e for e in entries if not several or _kernel_of(e) in (None, recording.kernel)]
        sources |= {s.name: s for s in sources_of(own, recording.kernel, recording.space, recording.device, root)}
    known = tuple(sources.values())
    return {label: Informed(known, one.options) if label in users else one for label, one in optimizers.items()}


def _kernel_of(entry: str) -> str | None:
    """The kernel that an entry names: a path by its folder; a device names none."""
    if entry.endswith(SUFFIXES):
        folder = Path(entry).expanduser().absolute().parent
        return folder.parent.name if folder.name == "recordings" else folder.name
    return entry.split("/")[0] if "/" in entry else None


def _read(entry: str, kernel: str, root: Path | str | None) -> Recording:
    if entry.endswith(SUFFIXES):
        return catalog.select([entry], root)[0]
    devices = {name.split("/")[1]: name for name in catalog.available(root) if name.split("/")[0] == kernel}
    if not devices:
        raise UserError(f"there is no recording of {kernel} to transfer from; give the path of one")
    if "/" in entry and entry.split("/")[0] != kernel:
        raise UserError(f"{entry} is no recording of {kernel}")
    device = entry.removeprefix(f"{kernel}/")
    return catalog.select([devices[choose(device, devices, f"recording of {kernel}")]], root)[0]


def _check(source: Recording, kernel: str, searchspace: Searchspace) -> None:
    if missing := [name for name in searchspace.param_names if name not in source.space.names]:
        raise UserError(
            f"{source.name} is no source for {kernel}: it lacks the parameter {missing[0]!r}; "
            f"it has {', '.join(source.space.names)}"
        )
    if not np.isfinite(joined(source, searchspace)).any():
        raise UserError(f"{source.name} is no source for {kernel}: no configuration that worked there is in this space")
