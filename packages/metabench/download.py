"""Downloads that survive what networks do: they go on where they stopped, are checked, and appear whole or not at all.

A download grows in NAME.part beside its place. Whatever interrupts it, the next attempt, in this run or a later one, asks the
server for the rest only. Complete and with the right checksum it is moved to its name; with a wrong one it starts over.
"""

from __future__ import annotations

import hashlib
import http.client
import logging
import os
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

from .errors import UserError

_CHUNK = 1 << 16
_log = logging.getLogger(__name__)
_PASSING = (urllib.error.URLError, http.client.HTTPException, OSError)


def checksum(path: Path, kind: str) -> str:
    """SHA-256 of a file, or its git blob id (the SHA-1 by which a git repository knows it)."""
    if kind == "git_blob":
        digest = hashlib.sha1(f"blob {path.stat().st_size}\0".encode(), usedforsecurity=False)
    else:
        digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()


def fetch(
    url: str,
    path: Path,
    expected: str,
    kind: str = "sha256",
    timeout: float = 30.0,
    attempts: int = 5,
    progress: Callable[[int], None] | None = None,
) -> bool:
    """Download `url` to `path`.

    Args:
        expected, kind: the checksum, and which one ("sha256" or "git_blob").
        timeout: seconds without a byte after which a connection counts as stalled.
        attempts: connections made, each after a longer pause, before giving up.
        progress: called with the bytes that are there.

    Returns:
        False if the right file was there already.

    Raises:
        UserError: not http, a missing file, or still no right file after all attempts; what arrived stays for the next try.
    """
    if not url.startswith(("http://", "https://")):
        raise UserError(f"cannot download {url}: only http:// and https:// addresses")
    if path.is_file() and checksum(path, kind) == expected:
        return False
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(path.name + ".part")
    reason = ""
    for attempt in range(attempts):
        if attempt:
            time.sleep(min(0.2 * 2**attempt, timeout / 3))
        try:
            complete = _receive(url, part, timeout, progress)
        except _PASSING as error:
            reason = _reason(url, error)
        else:
            if complete and checksum(part, kind) == expected:
                part.replace(path)
                return True
            reason = "the connection ended early" if not complete else f"its {kind} is not {expected}"
            if complete:
                part.unlink()
        _log.info("attempt %d of %s: %s", attempt + 1, url, reason)
    raise UserError(f"{url} could not be downloaded in {attempts} attempts: {reason}")


def _reason(url: str, error: Exception) -> str:
    """Why an attempt failed; a file that is not there is final."""
    if isinstance(error, urllib.error.HTTPError) and error.code in (401, 403, 404, 410):
        raise UserError(f"{url} could not be downloaded: the server says {error.code} {error.reason}") from error
    return str(error) or type(error).__name__


def _receive(url: str, part: Path, timeout: float, progress: Callable[[int], None] | None) -> bool:
    """Append what is missing of `part`; whether it is complete, as far as the server says."""
    have = part.stat().st_size if part.exists() else 0
    headers = {"User-Agent": "metaopt-toolkit", "Accept-Encoding": "identity"} | (
        {"Range": f"bytes={have}-"} if have else {}
    )
    try:
        response = urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=timeout)
    except urllib.error.HTTPError as error:
        if error.code != 416:
            raise
        return True  # nothing beyond what is there: complete, or wrong, which the checksum tells
    with response:
        resumed = response.status == 206 and response.headers.get("Content-Range", "").startswith(f"bytes {have}-")
        have = have if resumed else 0
        left = response.headers.get("Content-Length")
        total = have + int(left) if left is not None else None
        with part.open("ab" if resumed else "wb") as file:
            while chunk := response.read1(_CHUNK):
                file.write(chunk)
                have += len(chunk)
                if progress:
                    progress(have)
            file.flush()
            os.fsync(file.fileno())
    return total is None or have >= total
