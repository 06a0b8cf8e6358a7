"""Registers, shared memory and spills of the CUDA step's kernels by ptxas, for every mode and architecture: cuda_compile.json.

    python benchmarks/cuda_compile.py          # needs nvcc and no GPU; about five minutes on one core

A spill is a value that found no register and went to slow memory: no mode here has any.
"""

from __future__ import annotations

import json
import re
import subprocess
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
SOURCE = HERE.parent / "kernels" / "lopt_step" / "lopt_step.cu"
ARCHITECTURES = ("sm_80", "sm_90", "sm_100")
MODES: dict[str, dict[str, int]] = {
    "default: split TF32": {},
    "float32": {"PRECISION": 0},
    "float32, 2 elements a thread": {"PRECISION": 0, "ELEMENTS": 2},
    "TF32": {"PRECISION": 2},
    "2 elements a quad": {"ELEMENTS": 2},
    "2 elements a quad, weights in registers": {"ELEMENTS": 2, "WEIGHTS_IN_REGISTERS": 1},
    "256 threads, panels of 64": {"THREADS": 256, "PANEL": 64},
    "16 wide": {"HIDDEN": 16},
}
PATTERN = re.compile(
    r"entry function '(\w+)'.*?(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads"
    r".*?Used (\d+) registers(?:.*?(\d+) bytes smem)?[^\n]*",
    re.S,
)


def compiled(architecture: str, macros: dict[str, int]) -> dict[str, dict[str, int]]:
    """{kernel: {registers, shared_bytes, stack_bytes, spill_bytes}}; CalledProcessError with nvcc's words if it refuses."""
    with tempfile.TemporaryDirectory() as folder:
        defines = [f"-D{name}={value}" for name, value in macros.items()]
        line = ["nvcc", "-std=c++17", "-O3", f"-arch={architecture}", "-Xptxas", "-v", "-cubin", *defines]
        done = subprocess.run(
            [*line, "-o", f"{folder}/out.cubin", str(SOURCE)], capture_output=True, text=True, check=True
        )
    found = {}
    for block in done.stderr.split("ptxas info    : Compiling ")[1:]:
        name, stack, stores, loads, registers, shared = next(PATTERN.finditer(block)).groups()
        found[readable(name)] = {"registers": int(registers), "shared_bytes": int(shared or 0), "stack_bytes": int(stack),
                                 "spill_bytes": int(stores) + int(loads)}  # fmt: skip
    return found


def readable(mangled: str) -> str:
    """_ZN4lopt17accumulate_kernelILb1EE... -> "accumulate, velo"."""
    name = re.search(r"\d+([a-z]+)_kernel", mangled)
    family = re.search(r"_kernelILb([01])", mangled)
    assert name is not None, mangled
    return name[1] + ("" if family is None else ", velo" if family[1] == "1" else ", small_fc")


def version() -> str:
    return subprocess.run(["nvcc", "--version"], capture_output=True, text=True, check=True).stdout.splitlines()[-1]


def main() -> None:
    results = {mode: {a: compiled(a, macros) for a in ARCHITECTURES} for mode, macros in MODES.items()}
    report = {"nvcc": version(), "modes": MODES, "kernels": results}
    (HERE / "cuda_compile.json").write_text(json.dumps(report, indent=1) + "\n")
    kernels = [k for by in results.values() for own in by.values() for k in own.values()]
    print(f"{len(kernels)} kernels, at most {max(k['registers'] for k in kernels)} registers, "
          f"{sum(k['spill_bytes'] > 0 for k in kernels)} with spills")  # fmt: skip


if __name__ == "__main__":
    main()
