"""Devices without a GPU: a processor and the instructions that the compiler may use on it."""

from __future__ import annotations

import functools
import shutil
import subprocess

from metabench.errors import UserError, choose
from metabench.kernel import Kernel, cpu_device

__all__ = ["INSTRUCTION_SETS", "check_compiler", "compiler_version", "cpu_device", "flags_for"]

INSTRUCTION_SETS: dict[str, tuple[str, ...]] = {
    "avx2": ("-mavx2", "-mfma"),
    "avx512": ("-march=x86-64-v4",),
    "sse42": ("-msse4.2",),
    "native": ("-march=native",),
}
"""Device names and what they add to the flags of a kernel."""


def flags_for(kernel: Kernel, device: str | None = None) -> tuple[str, ...]:
    """Compiler flags of a kernel on a device: what its space.json asks for, with the device's instruction set.

    Args:
        device: one of `INSTRUCTION_SETS`; None keeps the instruction set of space.json, or takes "native" if it names none.
    """
    stated = kernel.space_definition().get("KernelSpecification", {}).get("CompilerOptions", ["-O3"])
    if device is None and any(flag.startswith("-m") for flag in stated):
        return tuple(stated)
    chosen = INSTRUCTION_SETS[choose(device or "native", INSTRUCTION_SETS, "device")]
    return (*(flag for flag in stated if not flag.startswith("-m")), *chosen)


def check_compiler(compiler: str) -> None:
    """Raise a `UserError` that says how to get a compiler if there is none of this name."""
    if shutil.which(compiler) is None:
        raise UserError(
            f"no C++ compiler {compiler!r} found: tuning builds kernels. Install one (Debian, Ubuntu: apt install g++; "
            "Fedora: dnf install gcc-c++; macOS: xcode-select --install; conda: conda install gxx), or name another."
        )


@functools.cache
def compiler_version(compiler: str) -> str:
    """First line of `compiler --version`."""
    found = subprocess.run([compiler, "--version"], capture_output=True, text=True, check=False, timeout=30)
    return (found.stdout or found.stderr).splitlines()[0].strip()
