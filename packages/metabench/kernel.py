"""Finds kernels/NAME and reads its parts.

A kernel folder is data: sources, the search space, a reference in NumPy, recordings and what tuning found. It lies at the
top of a checkout and inside the installed package; `root` finds it in both.
"""

from __future__ import annotations

import functools
import importlib.util
import json
import platform
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from .errors import UserError, choose


def root() -> Path:
    """The folder that holds one folder per kernel."""
    here = Path(__file__).resolve().parent
    installed, checkout = here / "_kernels", here.parents[1] / "kernels"
    return installed if installed.is_dir() else checkout


def available() -> list[str]:
    """Names of the kernels in this installation."""
    return sorted(folder.parent.name for folder in root().glob("*/space.json"))


def find(name: str) -> Kernel:
    """The kernel called `name`; an unknown name raises `UserError` with the allowed ones."""
    return Kernel(choose(name, available(), "kernel"), root() / name)


@dataclass(frozen=True)
class Kernel:
    """One folder under kernels/."""

    name: str
    folder: Path

    def source(self, suffix: str) -> Path:
        """The source for a backend: suffix ".cpp", ".cu", ".cl" or "_triton.py"."""
        path = self.folder / f"{self.name}{suffix}"
        if not path.is_file():
            there = sorted(p.name for p in self.folder.glob(f"{self.name}*") if p.is_file())
            raise UserError(f"kernel {self.name!r} has no {path.name}; it has: {', '.join(there) or 'no source'}")
        return path

    def space_definition(self) -> dict[str, Any]:
        """space.json, in T1 form."""
        return json.loads((self.folder / "space.json").read_text())

    def reference(self) -> ModuleType:
        """reference.py as a module: inputs, the right outputs, tolerances. Loaded by path: kernels/ is no package."""
        path = self.folder / "reference.py"
        spec = importlib.util.spec_from_file_location(f"_kernel_reference_{self.name}", path)
        if spec is None or spec.loader is None or not path.is_file():
            raise UserError(f"kernel {self.name!r} has no reference.py in {self.folder}")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    def recordings(self) -> Path:
        """Folder of the recordings that come with the kernel (it may not exist)."""
        return self.folder / "recordings"

    def tuned(self) -> Path:
        """Folder of the tuned entries that come with the kernel (it may not exist)."""
        return self.folder / "tuned"


def with_headers(source: Path) -> list[Path]:
    """A source and the files that it includes by `#include "..."`, each once, the source first: what a build depends on."""
    found: list[Path] = []
    waiting = [source.resolve()]
    while waiting:
        path = waiting.pop()
        if path not in found and path.is_file():
            found.append(path)
            names = re.findall(r'^\s*#\s*include\s+"([^"]+)"', path.read_text(), re.MULTILINE)
            waiting += [(path.parent / name).resolve() for name in names]
    return found


def cpu_device(flags: Iterable[str] = ("-march=native",)) -> str:
    """The device under which a kernel tuned on this processor is kept: its model and vector set, "amd-epyc-7b13-avx2".

    Args:
        flags: the compiler's flags. With -march=native, or none that choose instructions, the vector set is the widest
            that the processor has; other flags of that kind are named themselves: "amd-epyc-7b13-msse4.2".
    """
    chosen = [flag for flag in flags if flag.startswith("-m") and flag != "-march=native"]
    info = _cpuinfo()
    model = info.get("model name") or platform.processor() or platform.machine()
    return re.sub(r"[^a-z0-9.]+", "-", " ".join([model, *(chosen or [_vectors(info)])]).lower()).strip("-")


def _vectors(info: Mapping[str, str]) -> str:
    there = {*info.get("flags", "").split(), *info.get("Features", "").split()}
    names = {"avx512f": "avx512", "avx2": "avx2", "sse4_2": "sse4.2", "asimd": "neon"}
    return next((name for flag, name in names.items() if flag in there), platform.machine().lower())


@functools.cache
def _cpuinfo() -> dict[str, str]:
    """The first core's entries of /proc/cpuinfo; empty where there is none."""
    try:
        lines = Path("/proc/cpuinfo").read_text().split("\n\n")[0].splitlines()
    except OSError:
        return {}
    return {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in lines)}
