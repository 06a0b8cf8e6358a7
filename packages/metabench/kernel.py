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
from collections.abc import Iterable
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


def cpu_device(flags: Iterable[str] = ()) -> str:
    """The device under which a kernel tuned on this processor is kept: its model, and the instruction sets asked for.

    Model names of virtual machines say little ("Intel Xeon Processor"), so the family and model numbers belong to it:
    "intel-xeon-processor-6-143-march-native".

    Args:
        flags: the compiler's flags, of which those that choose instructions ("-m...") count.
    """
    chosen = [flag for flag in flags if flag.startswith("-m")]
    return re.sub(r"[^a-z0-9]+", "-", " ".join([_processor(), *chosen]).lower()).strip("-")


@functools.cache
def _processor() -> str:
    """Model name, family and model number as Linux tells them; elsewhere what Python knows."""
    try:
        lines = [line.partition(":") for line in Path("/proc/cpuinfo").read_text().splitlines()]
    except OSError:
        lines = []
    facts = {key.strip(): value.strip() for key, _, value in reversed(lines)}  # reversed: the first core's win
    known = " ".join(facts[key] for key in ("model name", "cpu family", "model") if key in facts)
    name = known or platform.processor() or platform.machine()
    return re.sub(r"\((R|TM|C)\)|\bCPU\b|@.*?Hz", " ", name, flags=re.IGNORECASE)
