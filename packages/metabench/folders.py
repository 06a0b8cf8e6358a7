"""Where a user's own files lie: the XDG folders, so that nothing lands in the working folder or in the package."""

from __future__ import annotations

import os
from pathlib import Path

_NAME = "metaopt-toolkit"


def cache() -> Path:
    """Files that can be made again."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / _NAME


def data() -> Path:
    """Files worth keeping: what the user's own tuning found."""
    return Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share") / _NAME
