"""What a number must carry: versions, machine, revision, date. Nothing here names a user, a host or a path."""

from __future__ import annotations

import datetime
import functools
import importlib.metadata
import os
import platform
import subprocess
from pathlib import Path
from typing import Any

_PACKAGES = ("metaopt-toolkit", "numpy", "torch", "triton", "kernel_tuner", "llamea-lite", "hydra-core")


@functools.cache
def processor() -> str:
    """Model name of the processor, as the system tells it."""
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def versions() -> dict[str, str]:
    """Versions of Python and of the packages that results depend on, of those that are installed."""
    found = {"python": platform.python_version()}
    for name in _PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def revision() -> str | None:
    """Git revision of the checkout this runs from, with "+" if it has changes; None outside a checkout."""
    here = Path(__file__).resolve().parents[2]
    if not (here / ".git").exists():
        return None
    try:
        git = functools.partial(subprocess.run, cwd=here, capture_output=True, text=True, check=True, timeout=10)
        commit = git(["git", "rev-parse", "--short=12", "HEAD"]).stdout.strip()
        return commit + ("+" if git(["git", "status", "--porcelain"]).stdout.strip() else "")
    except (OSError, subprocess.SubprocessError):
        return None


def stamp() -> dict[str, Any]:
    """Everything above, with date (UTC), system and core count."""
    return {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "versions": versions(),
        "revision": revision(),
        "processor": processor(),
        "cores": os.cpu_count(),
        "system": f"{platform.system()} {platform.machine()}",
    }
