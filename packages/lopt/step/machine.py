"""What a compiled or tuned kernel is good for: the processor and its vector instructions."""

from __future__ import annotations

import functools
import platform
import re
from pathlib import Path

INSTRUCTION_SETS = (("avx512f", "avx512"), ("avx2", "avx2"), ("sse4_2", "sse4.2"), ("asimd", "neon"))


@functools.cache
def _cpuinfo() -> dict[str, str]:
    """First processor's entries of /proc/cpuinfo; empty where there is none."""
    try:
        lines = Path("/proc/cpuinfo").read_text().split("\n\n")[0].splitlines()
    except OSError:
        return {}
    pairs = (line.partition(":") for line in lines if ":" in line)
    return {key.strip(): value.strip() for key, _, value in pairs}


def cpu_model() -> str:
    return _cpuinfo().get("model name") or platform.processor() or platform.machine()


def cpu_flags() -> str:
    """Everything `-march=native` looks at: a library built here must not be loaded on another kind of processor."""
    info = _cpuinfo()
    return " ".join([platform.machine(), *(info.get(k, "") for k in ("model", "stepping", "flags", "Features"))])


def instruction_set() -> str:
    flags = set(cpu_flags().split())
    return next((name for flag, name in INSTRUCTION_SETS if flag in flags), platform.machine().lower())


def device_name() -> str:
    """The key of tuned entries: CPU model and widest vector set, lower case, dashes: "amd-epyc-7b13-avx2"."""
    return re.sub(r"[^a-z0-9.]+", "-", f"{cpu_model()} {instruction_set()}".lower()).strip("-")
