"""Compiles a kernel's C++ source on first use and keeps the library for later processes.

The cache is keyed by source (its own headers included), flags, macros, compiler version and processor: if any differs, it
is another library. Many processes may ask at once: each builds in a folder of its own and moves the result into place,
which is atomic. A cache that cannot be written (read-only, full) is done without: the library is built in a temporary
folder, loaded, and removed.

A compiler without OpenMP (Apple's clang) builds the same library for one thread.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import hashlib
import os
import platform
import shlex
import shutil
import subprocess
import tempfile
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from metabench.kernel import with_headers

TIMEOUT = 300  # seconds; a build takes 1 to 3
OPENMP = "-fopenmp"


class BuildError(RuntimeError):
    """No compiler, or it refused; the message says what to do about it."""


def cache_folder() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "metaopt-toolkit" / "kernels"


def compiler() -> list[str]:
    """$CXX, else g++, else c++, else clang++; BuildError says how to get one."""
    chosen = shlex.split(os.environ.get("CXX", ""))
    if chosen and shutil.which(chosen[0]):
        return chosen
    if chosen:
        raise BuildError(f"CXX={os.environ['CXX']!r} is not on the path")
    for name in ("g++", "c++", "clang++"):
        if shutil.which(name):
            return [name]
    raise BuildError("no C++ compiler found: install one (Debian, Ubuntu: apt install g++) or set CXX")


@functools.cache
def _version(command: tuple[str, ...]) -> str:
    return subprocess.run([*command, "--version"], capture_output=True, text=True, timeout=60, check=False).stdout


@functools.cache
def processor() -> str:
    """Everything `-march=native` looks at: a library built here must not be loaded on another kind of processor."""
    try:
        lines = Path("/proc/cpuinfo").read_text().split("\n\n")[0].splitlines()
    except OSError:
        lines = []
    kept = [line for line in lines if line.split("\t")[0] in ("model name", "model", "stepping", "flags", "Features")]
    return " ".join([platform.machine(), platform.processor(), *kept])


def key(source: str, command: Sequence[str], arguments: Sequence[str]) -> str:
    """Hash of everything the library depends on."""
    parts = [source, *command, _version(tuple(command)), *arguments, processor()]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:24]


def text_of(source: Path) -> str:
    """A source with all that it includes by `#include "..."`, each file once."""
    return "\0".join(path.read_text() for path in with_headers(source))


def load(
    source: Path, flags: Sequence[str], defines: Mapping[str, Any], command: Sequence[str] | None = None
) -> ctypes.CDLL:
    """The library of one source under one configuration, from the cache or built now, by `command` or the C++ compiler.

    Raises:
        BuildError: no compiler, or it does not compile the source, with OpenMP or without.
    """
    command = compiler() if command is None else list(command)
    arguments = [*flags, *(f"-D{name}={value}" for name, value in sorted(defines.items()))]
    try:
        return _library(source, command, arguments)
    except BuildError as refused:
        if OPENMP not in arguments:
            raise
        try:
            library = _library(source, command, [argument for argument in arguments if argument != OPENMP])
        except BuildError:
            raise refused from None
        _warn_of_one_thread(command[0])
        return library


@functools.cache
def _warn_of_one_thread(name: str) -> None:
    """Once a process, which builds several sources."""
    message = f"{name} compiles lopt's C++ kernels without {OPENMP} only, so they run on one thread: install OpenMP or set CXX"
    warnings.warn(message, RuntimeWarning, stacklevel=3)


def _library(source: Path, command: list[str], arguments: list[str]) -> ctypes.CDLL:
    name = f"{source.stem}-{key(text_of(source), command, arguments)}.so"
    cached = cache_folder() / name
    library = _open(cached) if cached.is_file() else None
    return library or _build(source, [*command, *arguments], cached)


def _open(path: Path) -> ctypes.CDLL | None:
    """The library, or None if the file is no library (a disk that was full when it was copied)."""
    try:
        return ctypes.CDLL(str(path))
    except OSError:
        return None


def _build(source: Path, command: list[str], cached: Path) -> ctypes.CDLL:
    with _workplace(cached.parent) as folder:
        built = Path(folder) / cached.name
        _compile(source, command, built)
        library = _open(built)
        if library is None:
            raise BuildError(f"{source.name} was compiled, but the library does not load")
        # If the cache is elsewhere, read-only or full, this process has its library and the next will build again.
        with contextlib.suppress(OSError):
            built.replace(cached)
        return library


def _workplace(cache: Path) -> tempfile.TemporaryDirectory[str]:
    """A new folder beside the cache's files if that can be written, so that the move is atomic; else anywhere."""
    try:
        cache.mkdir(parents=True, exist_ok=True, mode=0o700)
        return tempfile.TemporaryDirectory(dir=cache, prefix=".build-", ignore_cleanup_errors=True)
    except OSError:
        return tempfile.TemporaryDirectory(prefix="metaopt-build-", ignore_cleanup_errors=True)


def _compile(source: Path, command: list[str], output: Path) -> None:
    line = [*command, "-shared", "-fPIC", "-o", str(output), str(source)]
    try:
        done = subprocess.run(line, capture_output=True, text=True, timeout=TIMEOUT, check=False)
    except (OSError, subprocess.TimeoutExpired) as e:
        raise BuildError(f"{command[0]} did not finish on {source.name}: {e}") from None
    if done.returncode:
        errors = [x for x in done.stderr.splitlines() if "error" in x] or done.stderr.splitlines() or ["no message"]
        raise BuildError(f"{command[0]} does not compile {source.name}: {errors[0].strip()}")
