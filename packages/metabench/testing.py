"""The hazard suite, for anyone's optimizer: inherit it, say how to make one, and pytest runs every hazard against it.

    from metabench.testing import OptimizerSuite

    class TestMine(OptimizerSuite):
        def make(self):
            return MyOptimizer()

An optimizer is a callable `optimizer(func, searchspace)`, Kernel Tuner's OptAlg. Each hazard is a fault that people reported of
real tuners, on the smallest space that shows it. A test fails with the space, the budget and what happened.
"""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from .recording import Recording
from .replay import Limits, Optimizer, Stop, Trace, replay
from .space import Space

SPACES: dict[str, Space] = {
    "twelve points": Space.from_dict({"block": [16, 32, 64, 128], "tile": [1, 2, 4]}),
    "one configuration": Space.from_dict({"block": [16], "tile": [1]}),
    "two configurations": Space.from_dict({"block": [16], "tile": [1, 2]}),
    "one- and two-valued parameters": Space.from_dict({"a": [7], "b": [0, 1], "c": [3], "d": list(range(9))}),
    "isolated points": Space.from_dict({"a": list(range(9)), "b": list(range(9))}, ["a == b"]),
    "holes": Space.from_dict({"a": list(range(16)), "b": list(range(16))}, ["a * b <= 30", "(a + b) % 3 != 0"]),
    "strings, truth values, floats": Space.from_dict(
        {"order": ["row", "column", "tiled"], "pad": [False, True], "scale": [0.5, 1.0, 1.5], "n": [1, 2, 4]}
    ),
    "a few hundred": Space.from_dict({"a": list(range(12)), "b": list(range(20)), "c": [1, 2]}, ["c == 1 or a > 2"]),
}
"""Small spaces, each with a property that breaks optimizers."""


def recording(space: Space, failing: float = 0.0, maximize: bool = False, seed: int = 0) -> Recording:
    """An invented recording: a bowl over the value indices, costs of 0.5 to 2 s, a share of failures; the optimum is valid."""
    rng = np.random.default_rng(seed)
    n = len(space)
    scaled = space.table / np.maximum(space.table.max(axis=0), 1)
    values = 1.0 + ((scaled - rng.random(scaled.shape[1])) ** 2).sum(axis=1) + 0.05 * rng.random(n)
    failed = rng.random(n) < failing
    failed[values.argmin()] = False
    values = np.where(failed, np.nan, 10.0 / values if maximize else values)
    status = np.where(failed, "runtime", "correct")
    return Recording("invented", "nowhere", space, values, rng.uniform(0.5, 2.0, n), status, maximize=maximize)


class OptimizerSuite:
    """Every hazard, as test methods. Override `make`, and the attributes where they do not fit.

    Attributes:
        seconds: wall-clock seconds that one run may take.
        reproducible: whether equal seeds (of `random`, of `numpy.random` and of the search space) give equal runs.
        unasked_share: how much of its calls may be for what is no configuration.
    """

    seconds: float = 20.0
    reproducible: bool = True
    unasked_share: float = 0.5

    def make(self) -> Optimizer:
        """A fresh optimizer, for one run."""
        raise NotImplementedError("override make(), so that it returns an optimizer")

    def run(self, space: str | Recording, seed: int = 0, **limits: Any) -> Trace:
        """One run; an optimizer that raises, or goes on for longer than `seconds`, fails the test."""
        on = recording(SPACES[space]) if isinstance(space, str) else space
        with wall_clock(self.seconds, f"{space} with {limits}"):
            trace = replay(self.make(), on, Limits(**limits), seed)
        assert not trace.error, f"on {space} with {limits} it raised {trace.error}"
        return trace

    @pytest.mark.parametrize("space", SPACES)
    def test_it_runs_on_every_kind_of_space(self, space: str) -> None:
        """One- and two-valued parameters, isolated points, holes, strings: Kernel Tuner #139, #158."""
        trace = self.run(space, evaluations=40)
        assert len(trace.rows) >= 1, f"on {space} it evaluated nothing"

    @pytest.mark.parametrize("evaluations", [1, 2, 3, 7])
    def test_a_tiny_budget_is_kept(self, evaluations: int) -> None:
        """Budgets smaller than a population: Kernel Tuner #170, #141, #206."""
        trace = self.run("a few hundred", evaluations=evaluations)
        assert len(trace.rows) == evaluations

    def test_a_budget_in_seconds_is_spent(self) -> None:
        """It goes on while there is budget; ending early forfeits what is left."""
        trace = self.run("a few hundred", seconds=60.0)
        assert trace.times[-1] > 30.0, f"it ended by itself after {trace.times[-1]:.0f} of 60 s ({trace.ended})"

    def test_a_budget_larger_than_the_space_ends(self) -> None:
        """Twelve configurations, budget for fifty: Kernel Tuner PR #338."""
        assert len(self.run("twelve points", evaluations=50).rows) <= 12

    @pytest.mark.parametrize("failing", [0.3, 0.9])
    def test_failures_are_survived(self, failing: float) -> None:
        """A failed configuration's loss is infinite; arithmetic on it must not end the run."""
        trace = self.run(recording(SPACES["a few hundred"], failing), evaluations=60)
        assert len(trace.rows) >= 30, f"it stopped after {len(trace.rows)} of 60 evaluations ({trace.ended})"

    def test_failures_first_are_survived(self) -> None:
        """Only infinite losses so far: there is no best, no spread, no direction yet."""
        barren = recording(SPACES["a few hundred"], failing=1.0)
        assert len(self.run(barren, evaluations=60).rows) >= 30

    def test_equal_values_are_survived(self) -> None:
        """A plateau: divisions by the spread of the values."""
        flat = recording(SPACES["a few hundred"])
        flat = Recording("invented", "flat", flat.space, np.ones(len(flat.space)), flat.costs, flat.status)
        assert len(self.run(flat, evaluations=60).rows) >= 30

    def test_maximising_is_survived(self) -> None:
        """Losses are then negative: Kernel Tuner #314."""
        assert len(self.run(recording(SPACES["holes"], 0.2, maximize=True), evaluations=40).rows) >= 20

    def test_it_asks_for_configurations(self) -> None:
        """Most of what it asks for is in the space."""
        trace = self.run("holes", evaluations=40)
        assert trace.illegal <= self.unasked_share * trace.calls, f"{trace.illegal} of {trace.calls} calls were illegal"

    def test_it_does_not_only_ask_for_what_it_knows(self) -> None:
        """Runs that end because the number of calls is capped, with budget left."""
        trace = self.run("a few hundred", evaluations=60)
        assert trace.ended != "calls", (
            f"{trace.revisits} revisits and {trace.illegal} illegal calls for {len(trace.rows)} evaluations"
        )

    def test_the_end_is_the_end(self) -> None:
        """The stop signal must come through: an optimizer that swallows everything is asked to stop again and again."""
        stops = 0

        def stop(*_: Any, **__: Any) -> float:
            nonlocal stops
            stops += 1
            if stops > 50:
                pytest.fail("it went on asking after 50 stops")
            raise Stop("budget")

        class Ended:
            budget_spent_fraction = 1.0
            __call__ = eval = eval_all = staticmethod(stop)

        from .searchspace import Searchspace

        with wall_clock(self.seconds, "a budget that is spent"), contextlib.suppress(Stop):
            self.make()(Ended(), Searchspace(SPACES["holes"], 0))  # type: ignore[arg-type]

    def test_a_seed_decides_the_run(self) -> None:
        """The same seed, the same run; another seed, another."""
        if not self.reproducible:
            pytest.skip("this optimizer says that it cannot be seeded")
        first, again, other = (self.run("a few hundred", seed=s, evaluations=40).rows.tolist() for s in (1, 1, 2))
        assert first == again, "the same seed gave two different runs"
        assert first != other, "two seeds gave the same run"

    def test_the_search_space_is_left_as_it_was(self) -> None:
        """The space is shared by all runs."""
        space = SPACES["holes"]
        before = (list(space.configurations), {k: list(v) for k, v in space.tune_params.items()}, space.table.copy())
        self.run("holes", evaluations=40)
        assert space.configurations == before[0]
        assert space.tune_params == before[1]
        assert np.array_equal(space.table, before[2])


class _TookTooLong(BaseException):
    pass


@contextlib.contextmanager
def wall_clock(seconds: float, what: str) -> Iterator[None]:
    """Fail the test if the block takes longer; without the signal for it (Windows, other threads) there is no limit."""
    if not hasattr(signal, "setitimer") or threading.current_thread() is not threading.main_thread():
        yield
        return

    def ring(*_: Any) -> None:
        raise _TookTooLong

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds, 0.05)  # again and again: an optimizer may swallow the first ones
    try:
        yield
    except _TookTooLong:
        signal.setitimer(signal.ITIMER_REAL, 0)
        pytest.fail(f"on {what} it did not end in {seconds:g} s")
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
