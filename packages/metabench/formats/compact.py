"""The compact form of a recording in the user's cache: one .npz of columns, keyed by the content that it was read from.

Parsing a hub's JSON takes 0.2-0.5 s, reading its columns some milliseconds. The key covers the recording's bytes, its
definition's, the objective and this form's version, so a changed file is a new key and nothing here ever goes stale.
"""

from __future__ import annotations

import hashlib
import io
import json
import logging
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from .. import folders, restriction
from ..details import PARTS, Details
from ..errors import UserError
from ..files import write_atomic
from ..recording import STATUSES, Recording
from ..space import Space

_VERSION = "2"
_log = logging.getLogger(__name__)


def cached(
    path: Path,
    definition: Path | None,
    options: dict[str, Any],
    parse: Callable[[], Recording],
    space: Space | None = None,
) -> Recording:
    """The recording in `path`: from its compact form if there is one, else parsed and then kept in it.

    Args:
        definition: the T1 file that its space comes from, if one.
        options: what else decides the result (objective, direction); JSON values.
        space: a space that the caller has already; it is used as it is.
    """
    kept = folders.cache() / "recordings" / f"{_key(path, definition, options, space)}.npz"
    try:
        return unpack(kept.read_bytes(), path, space)
    except (OSError, ValueError, KeyError, zipfile.BadZipFile) as error:
        if not isinstance(error, FileNotFoundError):
            _log.warning("%s is damaged and is made again: %s", kept.name, error)
    recording = parse()
    try:
        write_atomic(kept, pack(recording))
    except OSError as error:  # a full or read-only disk costs half a second next time, nothing more
        _log.info("no compact form kept: %s", error)
    return recording


def _key(path: Path, definition: Path | None, options: dict[str, Any], space: Space | None) -> str:
    digest = hashlib.blake2b(digest_size=16)
    try:
        contents = [p.read_bytes() for p in (path, definition) if p is not None]
    except OSError as error:
        raise UserError(f"{error.filename} cannot be read ({error})") from error
    own = [] if space is None else [repr((space.names, space.values)).encode(), space.table.tobytes()]
    for part in (_VERSION.encode(), json.dumps(options, sort_keys=True).encode(), *contents, *own):
        digest.update(len(part).to_bytes(8, "little"))
        digest.update(part)
    return digest.hexdigest()


def pack(recording: Recording) -> bytes:
    """A recording with details as the bytes of an .npz file; no pickles."""
    space, details = recording.space, recording.details
    if details is None:
        raise ValueError(f"{recording.name} has no details; only recordings read from a file have a compact form")
    head = {
        "objective": recording.objective, "unit": recording.unit, "maximize": recording.maximize, "meta": recording.meta,
        "metrics": list(recording.metrics), "names": space.names, "values": space.values, "defaults": space.defaults,
        "restrictions": [r.text for r in space.restrictions], "extra": details.extra,
    }  # fmt: skip
    n = len(space)
    columns = {
        "head": np.frombuffer(json.dumps(head).encode(), dtype=np.uint8),
        "table": space.table, "values": recording.values, "costs": recording.costs,
        "status": np.array([STATUSES.index(s) for s in recording.status.tolist()], dtype=np.uint8),
        "metrics": np.array(list(recording.metrics.values())).reshape(-1, n),
        "parts": np.array([details.parts[name] for name in PARTS]),
        "runs": details.runs, "counts": details.counts, "timestamps": np.char.encode(details.timestamps, "utf-8"),
    }  # fmt: skip
    buffer = io.BytesIO()
    np.savez(buffer, **columns)  # type: ignore[arg-type]
    return buffer.getvalue()


def unpack(raw: bytes, path: Path, space: Space | None = None) -> Recording:
    """The inverse of `pack`; kernel and device come from where the recording lies, which is `path`."""
    from .entries import kernel_and_device

    with np.load(io.BytesIO(raw), allow_pickle=False) as file:
        column = {name: file[name] for name in file.files}
    head = json.loads(column["head"].tobytes())
    space = space or _space(head, column["table"])
    details = Details(
        dict(zip(PARTS, column["parts"], strict=True)), column["runs"], column["counts"],
        np.char.decode(column["timestamps"], "utf-8"), {int(row): e for row, e in head["extra"].items()},
    )  # fmt: skip
    kernel, device = kernel_and_device(path)
    status = np.array(STATUSES)[column["status"]].astype("<U16")
    metrics = dict(zip(head["metrics"], column["metrics"], strict=True))
    told = (head["objective"], head["unit"], head["maximize"])
    values, costs = column["values"], column["costs"]
    return Recording(kernel, device, space, values, costs, status, *told, metrics, head["meta"], details=details)


def _space(head: dict[str, Any], table: np.ndarray) -> Space:
    restrictions = restriction.read(head["restrictions"], head["names"])
    return Space(head["names"], head["values"], restrictions, table, head["defaults"])
