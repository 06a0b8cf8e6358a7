"""From a program to its score, in steps of growing cost: static check, a toy space, one space, all spaces with several seeds.

All candidates meet the same seeds, so that they are compared on paired runs. The first failure of a candidate ends its
evaluation. A run ends when the optimum was measured, for its score cannot change any more; those on the toy space and the first
on the first recording go on, so that what a program does to the end of its budget is seen.

A program that was seen before costs nothing: one with the same syntax tree has the same evaluation at once; one that makes
the same requests in the same order, on the toy space and in the first run on the first recording, has it after these two runs.
(The toy space alone would not do: of 240 pairs of a components program and a variation of it, 73 agreed there, and 68 of
these differed on gemm.)
"""

from __future__ import annotations

import ast
import hashlib
import itertools
import math
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace

import numpy as np

from metabench.baseline import Baseline, baseline
from metabench.errors import UserError
from metabench.recording import Recording
from metabench.replay import Limits
from metabench.score import performance

from .contract import Failure, FailureKind, Rejected, check, imported
from .jail import JailLimits, Outcome
from .launch import Launcher, Local, Play
from .prompts import feedback
from .syntax import parse
from .toy import toy_recording

_ENOUGH = 3  # repeats before a candidate is compared with the bar


@dataclass(frozen=True)
class Evaluation:
    """What became of a program.

    Attributes:
        name: the class that is its optimizer; "" if none was found.
        runs: P of every run, by recording, in the order of the seeds.
        failure: why it has no score; None if it has one.
        output: what it printed in the run that failed, or in the last one.
        seconds: wall clock spent on it; cpu_seconds: of its own.
        repeated: whether the same program had been evaluated before, and this is that evaluation.
        trace: a digest of its requests on the toy space and in the first run; "" if it did not come so far.
    """

    name: str
    runs: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    failure: Failure | None = None
    output: str = ""
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    repeated: bool = False
    trace: str = ""

    @property
    def by_space(self) -> dict[str, float]:
        """Mean P by recording."""
        return {name: float(np.mean(p)) for name, p in self.runs.items()}

    @property
    def score(self) -> float | None:
        """Mean P over the recordings, None for a failure."""
        return None if self.failure is not None else float(np.mean(list(self.by_space.values())))

    @property
    def fitness(self) -> float:
        """What evolution maximises: the score, or minus infinity."""
        score = self.score
        return -np.inf if score is None else score

    @property
    def status(self) -> str:
        """ "ok", or the kind of failure."""
        return "ok" if self.failure is None else str(self.failure.kind)

    def feedback(self) -> str:
        """How it did, for its author."""
        return feedback(self.score, self.by_space, self.failure)


class Evaluator:
    """Evaluates programs, `workers` at a time. A context manager: its processes end with it.

    Args:
        recordings: what candidates are scored on.
        repeats: runs on each; run r has seed `seed + r`.
        limits: of the jail, for one run.
        launcher: where runs take place; by default on this machine. It is closed with the evaluator.
        candidate_seconds: CPU seconds that all runs of a candidate may take together, each of which the jail limits besides.

    Raises:
        UserError: no recordings, or two of one name; fewer than one repeat or worker.
    """

    def __init__(
        self,
        recordings: Sequence[Recording],
        repeats: int = 3,
        seed: int = 0,
        workers: int = 2,
        limits: JailLimits | None = None,
        launcher: Launcher | None = None,
        candidate_seconds: float = math.inf,
    ) -> None:
        if not recordings or len({r.name for r in recordings}) < len(recordings):
            raise UserError("evaluating needs at least one recording, and each only once")
        if repeats < 1 or workers < 1:
            raise UserError(f"evaluating needs at least one repeat and one worker, not {repeats} and {workers}")
        self.recordings, self.repeats, self.seed = list(recordings), repeats, seed
        self.candidate_seconds = candidate_seconds
        self._launcher = launcher or Local(workers, limits or JailLimits())
        self._baselines: dict[str, Baseline] = {}
        self._pool = ThreadPoolExecutor(workers, thread_name_prefix="evaluate")
        self._known: dict[tuple[str, int, int], Future[Evaluation]] = {}
        self._traces: dict[str, Evaluation] = {}
        self._lock = threading.Lock()

    def __enter__(self) -> Evaluator:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Wait for what is under way, drop what is not, end all processes."""
        self._pool.shutdown(wait=True, cancel_futures=True)
        self._launcher.close()

    def prepare(self) -> None:
        """Compute what all candidates need, so that the first does not wait for it; warn of what this system does not enforce."""
        self._launcher.prepare()
        for recording in self.recordings:
            self._baseline(recording)

    def evaluate(self, source: str) -> Evaluation:
        """Evaluate a program and wait for the result."""
        return self.submit(source).result()

    def submit(
        self, source: str, seed: int | None = None, repeats: int | None = None, bar: float | None = None
    ) -> Future[Evaluation]:
        """Evaluate a program; with other seeds or repeats than all others if asked.

        Args:
            bar: once the program's score is below this by more than chance explains, it is given up, and the runs that it had
                are its score.
        """
        seed, repeats = self.seed if seed is None else seed, repeats or self.repeats
        key = (_fingerprint(source), seed, repeats)
        with self._lock:
            known = self._known.get(key)
            if known is None:
                self._known[key] = future = self._pool.submit(self._evaluate, source, seed, repeats, bar)
                return future
        again: Future[Evaluation] = Future()
        known.add_done_callback(lambda done: _pass_on(done, again))
        return again

    def remember(self, source: str, evaluation: Evaluation) -> None:
        """Take over an evaluation that was made earlier, under the same settings."""
        done: Future[Evaluation] = Future()
        done.set_result(evaluation)
        with self._lock:
            self._known.setdefault((_fingerprint(source), self.seed, self.repeats), done)

    def settle(self, evaluations: Iterable[Evaluation]) -> None:
        """From now on, what behaves like one of these is a repetition of it, the first of several.

        To be told of a whole generation at its end: what counts as seen must not depend on which evaluation was faster.
        """
        for evaluation in evaluations:
            if evaluation.trace and not evaluation.repeated:
                self._traces.setdefault(evaluation.trace, evaluation)

    def _evaluate(self, source: str, seed: int, repeats: int, bar: float | None) -> Evaluation:
        started = time.monotonic()
        try:
            name = check(source)
        except Rejected as rejected:
            return Evaluation("", failure=rejected.failure, seconds=time.monotonic() - started)
        evaluation = _Candidate(self, source, name, seed, repeats).evaluate(bar)
        return replace(evaluation, seconds=time.monotonic() - started)

    def _seen(self, trace: str, seed: int, repeats: int) -> Evaluation | None:
        return self._traces.get(trace) if (seed, repeats) == (self.seed, self.repeats) else None

    def _baseline(self, recording: Recording) -> Baseline:
        with self._lock:
            if recording.name not in self._baselines:
                self._baselines[recording.name] = baseline(recording)
            return self._baselines[recording.name]


class _Candidate:
    """One evaluation under way: its runs so far."""

    def __init__(self, evaluator: Evaluator, source: str, name: str, seed: int, repeats: int) -> None:
        self._evaluator, self._source, self._name = evaluator, source, name
        self._seed, self._repeats, self._imports = seed, repeats, imported(source)
        self._runs: dict[str, list[float]] = {recording.name: [] for recording in evaluator.recordings}
        self._cpu, self._output, self._digest = 0.0, "", hashlib.sha256()
        self._failure: Failure | None = None

    def evaluate(self, bar: float | None) -> Evaluation:
        """The cascade: toy space, one space, all spaces repeat by repeat as long as there is a chance to reach the bar."""
        recordings = self._evaluator.recordings
        if not self._take(self._toy().result()) or not self._play([(recordings[0], 0)], whole=True):
            return self._result()
        trace = self._digest.hexdigest()
        if (known := self._evaluator._seen(trace, self._seed, self._repeats)) is not None:
            return replace(known, name=self._name, repeated=True, cpu_seconds=self._cpu)
        goes_on = self._play([(recording, 0) for recording in recordings[1:]])
        for first, last in self._rounds(bar):
            if not goes_on:
                break
            goes_on = self._play([(r, repeat) for repeat in range(first, last) for r in recordings])
            if bar is not None and goes_on and _is_hopeless(list(self._runs.values()), bar):
                break
        return self._result(trace)

    def _rounds(self, bar: float | None) -> list[tuple[int, int]]:
        """Repeats (first, last) that are run together: all that are left, or, with a bar, one at a time once it can decide."""
        if bar is None:
            return [(1, self._repeats)]
        cuts = [1, *range(min(_ENOUGH, self._repeats), self._repeats + 1)]
        return list(itertools.pairwise(cuts))

    def _toy(self) -> Future[Outcome]:
        play = Play(self._source, self._name, toy_recording(), Limits(), self._seed, self._imports, every_request=True)
        return self._evaluator._launcher.submit(play)

    def _play(self, which: list[tuple[Recording, int]], whole: bool = False) -> bool:
        """Runs on recordings, by number of the repeat, side by side, until the optimum is measured or, if `whole`, to the end
        of the budget; False once one failed."""
        plays = []
        for recording, repeat in which:
            base = self._evaluator._baseline(recording)
            limits = Limits(seconds=base.end, loss=None if whole else base.optimum)
            play = Play(self._source, self._name, recording, limits, self._seed + repeat, self._imports)
            plays.append((recording, self._evaluator._launcher.submit(play)))
        outcomes = [(recording, future.result()) for recording, future in plays]
        for recording, outcome in outcomes:
            if not self._take(outcome):
                return False
            p = performance(outcome.trace, recording, self._evaluator._baseline(recording))
            self._runs[recording.name].append(p)
        return True

    def _take(self, outcome: Outcome) -> bool:
        """Add a run to the account; False if it failed."""
        trace = outcome.trace
        self._digest.update((trace.rows if trace.asks is None else trace.asks).tobytes())
        self._digest.update(f"{trace.calls} {trace.illegal} {trace.revisits} {trace.ended};".encode())
        self._cpu += outcome.cpu_seconds
        self._output, self._failure = outcome.output, outcome.failure
        if self._failure is None and self._cpu > self._evaluator.candidate_seconds:
            most = self._evaluator.candidate_seconds
            self._failure = Failure(FailureKind.TIMEOUT, f"its runs took more than {most:g} CPU seconds together")
        return self._failure is None

    def _result(self, trace: str = "") -> Evaluation:
        scores = {} if self._failure else {name: tuple(p) for name, p in self._runs.items()}
        return Evaluation(self._name, scores, self._failure, self._output, cpu_seconds=self._cpu, trace=trace)


def _is_hopeless(runs: list[list[float]], bar: float) -> bool:
    """Whether a mean over spaces is below the bar by more than chance explains, after at least three runs on each.

    Chance: three standard errors of the mean, of runs with no less than the usual spread (0.3), for three tell little of theirs.
    """
    count = len(runs[0])
    if count < _ENOUGH:
        return False
    spread = max(float(np.sqrt(np.mean([np.var(p, ddof=1) for p in runs]))), 0.3)
    error = spread / np.sqrt(count * len(runs))
    return float(np.mean(runs)) + 3.0 * float(error) < bar


def _fingerprint(source: str) -> str:
    """The syntax tree without positions, so that comments and layout do not matter; the source itself if it has none."""
    try:
        return ast.dump(parse(source))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return source


def _pass_on(done: Future[Evaluation], again: Future[Evaluation]) -> None:
    if done.cancelled():
        again.cancel()
    elif error := done.exception():
        again.set_exception(error)
    else:
        again.set_result(replace(done.result(), repeated=True, seconds=0.0, cpu_seconds=0.0))
