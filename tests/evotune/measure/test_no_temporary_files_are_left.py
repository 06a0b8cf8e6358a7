"""Kernel Tuner leaves temp_*.c in the working folder when a build fails, and a killed g++ its own files: none may stay."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from evotune.measure import record, tune
from metabench.kernel import Kernel


@pytest.fixture
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder and a temporary folder of our own, both empty."""
    for name in ("work", "temporary"):
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path / "work")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    return tmp_path


def test_nothing_is_left_by_failures(faulty: Callable[..., Kernel], quick: dict[str, Any], scratch: Path) -> None:
    record(faulty([0, 1, 2, 3, 4]), "native", scratch / "out" / "r.json", **quick)
    assert [p.name for p in (scratch / "out").iterdir()] == ["r.json"]
    assert not list((scratch / "work").iterdir())
    assert not list((scratch / "temporary").iterdir())


def test_nothing_is_left_when_a_build_is_killed(make_kernel, reference: str, scratch: Path) -> None:
    # Nested templates: a compile bomb that would build for minutes.
    bomb = """
    template <int A, int B> struct T { static constexpr long v = T<A - 1, B>::v + T<A - 1, B + 1>::v; };
    template <int B> struct T<0, B> { static constexpr long v = 1; };
    extern "C" float bomb(float *y, const float *x, int n) {
    #if P == 2
        y[0] = T<800, 0>::v;
    #endif
        for (int i = 0; i < n; ++i) y[i] = 2 * x[i];
        return 1;
    }
    """
    kernel = make_kernel("bomb", bomb, reference, {"P": [1, 2]})
    found = tune(kernel, "random_sample", evaluations=2, build_seconds=1.0, repeats=2, finalists=0)
    assert found.failures == {"timeout": 1}
    assert "build took longer than 1.0 s" in found.outcomes[1].error
    assert not list((scratch / "work").iterdir())
    assert not list((scratch / "temporary").iterdir())
