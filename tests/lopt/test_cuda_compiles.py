"""nvcc takes the CUDA source and finds a register for everything; the source and those who call it have the same names."""

from __future__ import annotations

import importlib.util
import re
import shutil
from pathlib import Path

import pytest

from lopt.step import cuda
from metabench import kernel as kernels

BENCHMARK = Path(__file__).resolve().parents[2] / "benchmarks" / "cuda_compile.py"
FOLDER = kernels.root() / "lopt_step"
TEXT = "\n".join(p.read_text() for p in (FOLDER / "lopt_step.cu", *sorted((FOLDER / "cuda").glob("*.cuh"))))


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="needs nvcc, NVIDIA's compiler")
def test_it_compiles_without_spills():
    """One architecture here; benchmarks/cuda_compile.py has three, and every mode."""
    spec = importlib.util.spec_from_file_location("cuda_compile", BENCHMARK)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    found = module.compiled("sm_90", {})
    names = ("accumulate", "fold", "apply")
    assert sorted(found) == sorted(
        ["sums", "finalise", "means", *(f"{n}, {f}" for n in names for f in ("small_fc", "velo"))]
    )
    assert {name: k["spill_bytes"] for name, k in found.items()} == dict.fromkeys(found, 0)
    assert all(k["shared_bytes"] <= 48 * 1024 and k["registers"] <= 255 for k in found.values())


def test_the_step_structure_is_the_sources():
    body = re.search(r"struct Step \{(.*?)\n\};", TEXT, re.DOTALL)[1]
    declared = [
        name
        for line in re.findall(r"([^;]+);", re.sub(r"//.*", "", body))
        for name in re.findall(r"(\w+)(?:,|$)", line)
    ]
    assert declared == [name for name, _ in cuda.Step._fields_]


def test_every_tunable_is_a_macro_with_a_default():
    assert {*cuda.TUNABLE} == {*re.findall(r"#ifndef (\w+) .*\n#define \1 \d+", TEXT)} - {"HIDDEN"}
