"""Who turns a configuration into something that can be run: Kernel Tuner's backends, behind four methods.

A backend lives inside a worker process, in a working folder of its own, so that what Kernel Tuner leaves behind on a failure
(temporary sources) disappears with the folder, and a crash ends the worker and not the run.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from kernel_tuner.backends.compiler import CompilerFunctions
from kernel_tuner.core import KernelInstance, KernelSource

from metabench.errors import choose
from metabench.kernel import Kernel


class BuildError(Exception):
    """The configuration does not compile; the message is the compiler's."""


class Build(Protocol):
    """One configuration, built."""

    def run(self) -> float:
        """Run once on the arguments as they are; milliseconds, as the kernel or the device measured them."""
        ...

    def release(self) -> None:
        """Unload it."""
        ...


class Backend(Protocol):
    """Builds configurations of one kernel for one set of arguments."""

    def build(self, configuration: Mapping[str, Any]) -> Build:
        """Compile and load; `BuildError` if that fails."""
        ...

    def restore(self) -> None:
        """Set all arguments to their first values, so that outputs are poisoned and an in-place kernel starts anew."""
        ...

    def outputs(self, names: tuple[str, ...]) -> dict[str, np.ndarray]:
        """What the last run left in these arguments."""
        ...


class Cpu:
    """C++ through Kernel Tuner's `CompilerFunctions`. Tunable parameters become preprocessor macros."""

    suffix = ".cpp"

    def __init__(self, kernel: Kernel, flags: tuple[str, ...], compiler: str, inputs: Mapping[str, Any]) -> None:
        self.name, self.source, self.compiler = kernel.name, kernel.source(self.suffix), compiler
        self.flags = [*flags, f"-I{kernel.folder}"]  # the source is copied to build it; what it includes lies at home
        self.first = dict(inputs)
        self.arguments = {k: _aligned(v) if isinstance(v, np.ndarray) else v for k, v in inputs.items()}

    def build(self, configuration: Mapping[str, Any]) -> CpuBuild:
        """Compile and load; `BuildError` if that fails."""
        return CpuBuild(self, configuration)

    def restore(self) -> None:
        """Set all arguments to their first values."""
        for name, value in self.first.items():
            if isinstance(value, np.ndarray):
                np.copyto(self.arguments[name], value)

    def outputs(self, names: tuple[str, ...]) -> dict[str, np.ndarray]:
        """The arguments themselves: there is no device memory to copy from."""
        return {name: self.arguments[name] for name in names}


class CpuBuild:
    """One shared library. Each has its own `CompilerFunctions`, which unloads its library when it compiles the next."""

    def __init__(self, backend: Cpu, configuration: Mapping[str, Any]) -> None:
        self.functions = CompilerFunctions(compiler_options=backend.flags, compiler=backend.compiler)
        macros = {name: int(v) if isinstance(v, bool) else v for name, v in configuration.items()}
        source = KernelSource(backend.name, str(backend.source), "C", defines={k: str(v) for k, v in macros.items()})
        nothing = ((1, 1, 1), (1, 1, 1))  # grid and block: notions of a GPU
        name, text, files = source.prepare_list_of_files(backend.name, macros, *nothing, [])
        instance = KernelInstance(name, source, text, files, *nothing, macros, [])
        try:
            self.function = self.functions.compile(instance)
        except subprocess.CalledProcessError as error:
            message = error.stderr or f"{backend.compiler} ended with code {error.returncode}"
            raise BuildError(_readable(message, backend.source.name)) from error
        except (OSError, AttributeError) as error:  # it compiled, and cannot be loaded or lacks the kernel's name
            raise BuildError(str(error)) from error
        self.arguments = self.functions.ready_argument_list(list(backend.arguments.values()))

    def run(self) -> float:
        """Run once; milliseconds."""
        return float(self.functions.run_kernel(self.function, self.arguments, None, None))

    def release(self) -> None:
        """Unload the library."""
        self.functions.cleanup_lib()


def make(name: str, kernel: Kernel, flags: tuple[str, ...], compiler: str, inputs: Mapping[str, Any]) -> Backend:
    """The backend called `name`: "cpu" is the one there is now."""
    choose(name, SUFFIXES, "backend")
    return Cpu(kernel, flags, compiler, inputs)


SUFFIXES: dict[str, str] = {"cpu": Cpu.suffix}
"""Backends, and the ending of the sources that they build."""


def source_of(kernel: Kernel, backend: str) -> Path:
    """The source that a backend builds; `UserError` if the kernel has none."""
    return kernel.source(SUFFIXES[choose(backend, SUFFIXES, "backend")])


def _readable(message: str, source: str) -> str:
    """A compiler's message that names the source instead of its temporary copy, without the excerpts, which are off by the
    lines that Kernel Tuner put before it."""
    named = re.sub(r"[\w./-]*\btemp_\w+\.\w+", source, message)
    return "\n".join(line for line in named.splitlines() if not re.match(r"\s+\d*\s*\|", line))


def _aligned(array: np.ndarray) -> np.ndarray:
    """A copy that starts at a cache line, so that its place in memory does not differ from worker to worker."""
    room = np.empty(array.nbytes + 64, np.uint8)
    start = -room.ctypes.data % 64
    copy = room[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy
