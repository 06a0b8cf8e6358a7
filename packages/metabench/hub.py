"""The auto-tuning community's benchmark hub: fully measured search spaces, fetched for a user, never part of this toolkit.

hub.json beside this file pins the commit, and for every file its size and SHA-256, or, for the largest files, the id under which
git knows it. `metaopt spaces download` brings them into the user's data folder, where `spaces.root=hub` finds them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from . import download, folders
from .errors import UserError, choose


def folder() -> Path:
    """Where the hub lies once it was downloaded."""
    return folders.data() / "hub"


def manifest() -> dict[str, Any]:
    """The pinned commit, the address and the files with their checksums."""
    return json.loads(Path(__file__).with_name("hub.json").read_text())


def kernels() -> list[str]:
    """Kernels of which the hub has recordings."""
    return sorted({path.split("/")[1] for path in manifest()["files"] if path.startswith("cachefiles/")})


def files_of(wanted: Sequence[str]) -> dict[str, dict[str, Any]]:
    """{path: checksums} of some kernels, their definitions and the licence; of all kernels for an empty list.

    Raises:
        UserError: an unknown kernel; the message lists the allowed ones.
    """
    for name in wanted:
        choose(name, kernels(), "kernel of the benchmark hub")
    chosen = list(wanted) or kernels()
    return {
        path: sums
        for path, sums in manifest()["files"].items()
        if "/" not in path or path.split("/")[1].removesuffix(".json") in chosen
    }


def fetch(
    to: Path,
    wanted: Sequence[str] = (),
    mirror: str | None = None,
    commit: str | None = None,
    timeout: float = 30.0,
    progress: Callable[[str, int], None] | None = None,
) -> list[Path]:
    """Download the hub, or some kernels of it; what is there and right is left alone.

    Args:
        mirror: address of a folder laid out like the hub, in place of its public repository.
        commit: another commit of the public repository. Files that it changed fail their checksum, as numbers would change.
        progress: called with a file's path and the bytes of it that are there.

    Returns:
        The files that were downloaded.

    Raises:
        UserError: unknown kernel, or a file that could not be had; everything before it stays.
    """
    pinned = manifest()
    address = f"{mirror.rstrip('/')}/{{path}}" if mirror else pinned["url"]
    fetched = []
    for path, sums in files_of(wanted).items():
        kind = "sha256" if "sha256" in sums else "git_blob"
        url = address.format(commit=commit or pinned["commit"], path=quote(path))
        report = (lambda have, path=path: progress(path, have)) if progress else None
        if download.fetch(url, to / path, sums[kind], kind, timeout, progress=report):
            fetched.append(to / path)
    return fetched


def root_of(root: Path | str) -> Path:
    """The folder that `spaces.root` names; "hub" is the downloaded one.

    Raises:
        UserError: it is no folder.
    """
    place = folder() if str(root) == "hub" else Path(root).expanduser()
    if not place.is_dir():
        how = (
            "fetch it with: metaopt spaces download" if str(root) == "hub" else "it must hold cachefiles/ and kernels/"
        )
        raise UserError(f"{place} is no folder; spaces.root must name a benchmark hub: {how}")
    return place
