"""From a program to its score: static check, a toy space, then all recordings with several seeds, in jails, some at a
time.

All candidates meet the same seeds, so that they are compared on paired runs. The first failure of a candidate ends
its evaluation.
A program whose syntax tree was seen before costs nothing: it has the same evaluation.
"""

from __future__ import annotations

import ast
import queue
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace

import numpy as np

from metabench.baseline import Baseline, baseline
from metabench.errors import UserError
from metabench.recording import Recording
from metabench.replay import Limits
from metabench.score import performance

from .contract import Failure, Rejected, check, imported
from .jail import Jail, JailLimits
from .prompts import feedback
from .syntax import parse
from .toy import toy_recording


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
    """

    name: str
    runs: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    failure: Failure | None = None
    output: str = ""
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    repeated: bool = False

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
    """Evaluates programs, `workers` at a time. A context manager: its serving processes end with it.

    Args:
        recordings: what candidates are scored on.
        repeats: runs on each; run r has seed `seed + r`.
        limits: of the jail, for one run.

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
    ) -> None:
        if not recordings or len({r.name for r in recordings}) < len(recordings):
            raise UserError("evaluating needs at least one recording, and each only once")
        if repeats < 1 or workers < 1:
            raise UserError(f"evaluating needs at least one repeat and one worker, not {repeats} and {workers}")
        self.recordings, self.repeats, self.seed = list(recordings), repeats, seed
        self._limits = limits or JailLimits()
        self._baselines: dict[str, Baseline] = {}
        self._pool = ThreadPoolExecutor(workers, thread_name_prefix="evaluate")
        self._jails: queue.SimpleQueue[Jail] = queue.SimpleQueue()
        self._all_jails = [Jail(self._limits) for _ in range(workers)]
        for jail in self._all_jails:
            self._jails.put(jail)
        self._known: dict[tuple[str, int, int], Future[Evaluation]] = {}
        self._lock = threading.Lock()

    def __enter__(self) -> Evaluator:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Wait for what is under way, drop what is not, end the serving processes."""
        self._pool.shutdown(wait=True, cancel_futures=True)
        for jail in self._all_jails:
            jail.close()

    def prepare(self) -> None:
        """Compute what all candidates need, so that the first does not wait for it; warn of what this system does not enforce."""
        self._all_jails[0].warn()
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

    def _evaluate(self, source: str, seed: int, repeats: int, bar: float | None) -> Evaluation:
        started = time.monotonic()
        try:
            name = check(source)
        except Rejected as rejected:
            return Evaluation("", failure=rejected.failure, seconds=time.monotonic() - started)
        jail = self._jails.get()
        try:
            evaluation = self._run_all(jail, source, name, seed, repeats, bar)
        finally:
            self._jails.put(jail)
        return replace(evaluation, seconds=time.monotonic() - started)

    def _run_all(self, jail: Jail, source: str, name: str, seed: int, repeats: int, bar: float | None) -> Evaluation:
        """Toy space first, then repeat by repeat over all recordings, so that a failure shows as early as it can."""
        imports = imported(source)
        outcome = jail.run(source, name, toy_recording(), Limits(), seed, imports)
        cpu = outcome.cpu_seconds
        runs: dict[str, list[float]] = {recording.name: [] for recording in self.recordings}
        for repeat in range(repeats):
            for recording in self.recordings:
                if outcome.failure is not None:
                    return Evaluation(name, {}, outcome.failure, outcome.output, cpu_seconds=cpu)
                base = self._baseline(recording)
                outcome = jail.run(source, name, recording, Limits(seconds=base.end), seed + repeat, imports)
                cpu += outcome.cpu_seconds
                runs[recording.name].append(performance(outcome.trace, recording, base))
            if bar is not None and outcome.failure is None and _is_hopeless(list(runs.values()), bar):
                break
        scores = {} if outcome.failure else {key: tuple(p) for key, p in runs.items()}
        return Evaluation(name, scores, outcome.failure, outcome.output, cpu_seconds=cpu)

    def _baseline(self, recording: Recording) -> Baseline:
        with self._lock:
            if recording.name not in self._baselines:
                self._baselines[recording.name] = baseline(recording)
            return self._baselines[recording.name]


def _is_hopeless(runs: list[list[float]], bar: float) -> bool:
    """Whether a mean over spaces is below the bar by more than chance explains, after at least three runs on each.

    Chance: three standard errors of the mean, of runs with no less than the usual spread (0.3), for three tell little of theirs.
    """
    count = len(runs[0])
    if count < 3:
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
