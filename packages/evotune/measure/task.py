"""What a worker must know to measure configurations of one kernel, and how long it may take for one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from metabench.kernel import Kernel

from .device import check_compiler, flags_for


@dataclass(frozen=True)
class Task:
    """One kernel on one device.

    Attributes:
        kernel: the kernel.
        flags: the compiler's flags, the device's instruction set among them.
        backend: who builds and runs it; see `evotune.measure.backend`.
        compiler: the compiler's command.
        size: handed to the kernel's `inputs(size)`; None for its own size.
        seed: of the inputs.
        repeats: timed runs of a configuration, at least. More follow, up to three times as many, until the two fastest
            agree within 1 %: on a machine with neighbours, a minimum seen once may be far from the minimum.
        cutoff: a configuration whose first two timed runs are slower than `cutoff` times the best so far is not timed
            further; None times every configuration to the end.
        build_seconds, run_seconds: after so long a build, or a single run, is killed and the configuration has failed.
        threads: OMP_NUM_THREADS of the workers.
        realtime: time with real-time priority, so that other processes cannot interrupt a run; see `realtime`.
        environment: further variables for the workers.
    """

    kernel: Kernel
    flags: tuple[str, ...]
    backend: str = "cpu"
    compiler: str = "g++"
    size: Any = None
    seed: int = 0
    repeats: int = 7
    cutoff: float | None = None
    build_seconds: float = 60.0
    run_seconds: float = 10.0
    threads: int = 1
    realtime: bool = False
    environment: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(
        cls, kernel: Kernel, device: str | None = None, flags: tuple[str, ...] | None = None, **options: Any
    ) -> Task:
        """A task for a device by name (`device.INSTRUCTION_SETS`), or for explicit flags.

        Raises:
            UserError: unknown device, or no such compiler here.
        """
        task = cls(_absolute(kernel), tuple(flags) if flags is not None else flags_for(kernel, device), **options)
        check_compiler(task.compiler)
        return task


def _absolute(kernel: Kernel) -> Kernel:
    """Workers run in folders of their own, where a relative path would lead elsewhere."""
    return Kernel(kernel.name, Path(kernel.folder).resolve())
