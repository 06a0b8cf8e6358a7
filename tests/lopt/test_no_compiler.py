"""Without a compiler, or with one that refuses, lopt steps in plain PyTorch and says once how to change that."""

from __future__ import annotations

import warnings

import pytest
import torch

from lopt import SmallFCLOpt
from lopt.step import cpu, dispatch


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
