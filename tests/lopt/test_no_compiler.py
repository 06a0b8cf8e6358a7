"""Without a compiler, or with one that refuses, lopt steps in plain PyTorch and says once how to change that."""

from __future__ import annotations

import warnings

import pytest
import torch

from lopt import SmallFCLOpt
from lopt.step import build, cpu, dispatch


@pytest.fixture(autouse=True)
def nothing_built(monkeypatch):
    """Each test asks for the library anew."""
    for cached in (cpu.library, dispatch._find_library):
        cached.cache_clear()
    yield
    for cached in (cpu.library, dispatch._find_library):
        cached.cache_clear()


def step(backend):
    p = torch.nn.Parameter(torch.ones(8, 8))
    p.grad = torch.eye(8)
    SmallFCLOpt([p], weights="random:0", backend=backend).step()
    return p.detach()


@pytest.mark.parametrize("backend", ["auto", "cpu"])
@pytest.mark.parametrize(
    ("compiler", "said"), [("no-such-compiler", "is not on the path"), ("false", "does not compile")]
)
def test_one_warning_and_the_reference(monkeypatch, tmp_path, backend, compiler, said):
    monkeypatch.setenv("CXX", compiler)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.warns(RuntimeWarning, match=said) as caught:
        first, second = step(backend), step(backend)
    assert len(caught) == 1
    assert torch.equal(first, step("reference")) and torch.equal(second, first)
    assert not [f for f in tmp_path.rglob("*") if f.is_file()], "a failed build leaves nothing behind"


@pytest.fixture
def without_openmp(tmp_path, monkeypatch):
    """A compiler that refuses -fopenmp, as Apple's does, and counts how often it is called."""
    script, calls = tmp_path / "bin" / "clang-stand-in", tmp_path / "calls"
    script.parent.mkdir()
    script.write_text(
        f'#!/bin/sh\necho "$@" >> {calls}\nfor a in "$@"; do if [ "$a" = -fopenmp ]; then\n'
        "echo \"clang: error: unsupported option '-fopenmp'\" >&2; exit 1; fi; done\n"
        'exec g++ "$@"\n'
    )
    script.chmod(0o755)
    monkeypatch.setenv("CXX", str(script))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    build._warn_of_one_thread.cache_clear()
    return calls


def test_a_compiler_without_openmp_builds_for_one_thread_and_says_so_once(without_openmp, monkeypatch):
    with pytest.warns(
        RuntimeWarning, match=r"clang-stand-in compiles .* without -fopenmp only, so they run on one thread"
    ) as caught:
        first = step("cpu")
    assert len(caught) == 1
    assert dispatch._find_library.cache_info().currsize == 1
    built = [line for line in without_openmp.read_text().splitlines() if " -o " in f" {line}"]
    assert len(built) == 4 and sum("-fopenmp" in line for line in built) == 2
    for cached in (cpu.library, dispatch._find_library):
        cached.cache_clear()
    monkeypatch.delenv("CXX")
    assert torch.equal(first, step("cpu")), "one thread or several, the step is the same"


def test_the_first_refusal_is_the_one_that_is_told(tmp_path, monkeypatch, without_openmp):
    source = tmp_path / "broken.cpp"
    source.write_text("#error no good\n")
    with pytest.raises(build.BuildError, match="unsupported option '-fopenmp'"):
        build.load(source, ["-O1", "-fopenmp"], {})
    with pytest.raises(build.BuildError, match="no good"):
        build.load(source, ["-O1"], {})
    assert sum("broken" in line for line in without_openmp.read_text().splitlines()) == 3


def test_no_compiler_at_all_says_how_to_get_one(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.warns(RuntimeWarning, match=r"apt install g\+\+"):
        step("auto")


def test_the_reference_needs_no_compiler(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        step("reference")


def test_an_unknown_backend_is_refused():
    with pytest.raises(ValueError, match="auto, reference, cpu"):
        SmallFCLOpt([torch.nn.Parameter(torch.ones(1))], weights="random:0", backend="gpu")
