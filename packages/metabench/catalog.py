"""Recordings by name: the bundled ones, and those of a benchmark hub in a folder.

A bundled recording is kernels/KERNEL/recordings/DEVICE.json.gz, called "KERNEL/DEVICE". In a hub (the community's benchmark_hub,
or any folder laid out like it) it is cachefiles/KERNEL/DEVICE.json.gz, with the space's definition in kernels/KERNEL.json.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from . import hub, recording
from . import kernel as kernels
from .errors import choose
from .recording import Recording

_SUFFIXES = (".json.gz", ".json")


def available(root: Path | str | None = None) -> dict[str, Path]:
    """{name: file} of all recordings, bundled or under a hub's folder.

    Raises:
        UserError: `root` is no folder.
    """
    if root is None:
        bundled = [kernels.find(name).recordings() for name in kernels.available()]
        return {f"{f.parent.name}/{_stem(p)}": p for f in bundled for p in _files(f)}
    folder = hub.root_of(root)
    base = folder / "cachefiles" if (folder / "cachefiles").is_dir() else folder
    return {
        f"{kernel.name}/{_stem(p)}": p for kernel in sorted(base.iterdir()) if kernel.is_dir() for p in _files(kernel)
    }


def select(
    names: str | Iterable[str],
    root: Path | str | None = None,
    objective: str | None = None,
    maximize: bool | None = None,
) -> list[Recording]:
    """Load recordings.

    Args:
        names: each a recording ("gemm/avx2"), a kernel (all its recordings: "gemm"), "all", or the path of a file.
        root: a benchmark hub's folder, "hub" for the downloaded one; None for the bundled recordings.
        objective, maximize: as `metabench.load`; by default what each file says.

    Raises:
        UserError: an unknown name (the allowed ones are listed), or a file that cannot be read.
    """
    names = [names] if isinstance(names, str) else list(names)
    there = available(root)
    files: dict[Path, None] = {}
    for name in names:
        files |= dict.fromkeys(_match(name, there))
    return [read(path, objective, maximize) for path in files]


def read(path: Path, objective: str | None = None, maximize: bool | None = None) -> Recording:
    """Load one recording, in the space of its kernel's definition where that lies beside it."""
    return recording.load(path, None, objective, maximize, _definition(path))


def _match(name: str, there: dict[str, Path]) -> list[Path]:
    if name.endswith(_SUFFIXES):
        return [Path(name).expanduser()]
    if name == "all":
        return list(there.values())
    if of_kernel := [path for key, path in there.items() if key.split("/")[0] == name]:
        return of_kernel
    return [there[choose(name, there, "recording")]]


def _definition(path: Path) -> Path | None:
    folder = path.resolve().parent
    beside = (
        folder.parent / "space.json"
        if folder.name == "recordings"
        else folder.parents[1] / "kernels" / f"{folder.name}.json"
    )
    return beside if beside.is_file() else None


def _files(folder: Path) -> list[Path]:
    return sorted(p for p in folder.glob("*.json*") if p.name.endswith(_SUFFIXES) and not _stem(p).endswith("_T4"))


def _stem(path: Path) -> str:
    return path.name.removesuffix(".gz").removesuffix(".json")
