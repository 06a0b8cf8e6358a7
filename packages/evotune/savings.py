"""What an evolution did not have to compute: repetitions, candidates given up early, failures found early."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from .archive import Candidate


@dataclass(frozen=True)
class Savings:
    """CPU seconds of candidates; those saved are estimates.

    Attributes:
        spent: by all candidates.
        repeated, given_up, failed: (candidates, seconds saved): what was seen before took its first evaluation's time less; what
            was given up after some of its repeats, in proportion, those that it did not have; what failed, the rest of what
            a complete evaluation takes in the median.
    """

    spent: float
    repeated: tuple[int, float]
    given_up: tuple[int, float]
    failed: tuple[int, float]

    @property
    def saved(self) -> float:
        """CPU seconds, in all."""
        return self.repeated[1] + self.given_up[1] + self.failed[1]

    def describe(self) -> str:
        """In a sentence."""
        parts = (("repetitions", self.repeated), ("given up early", self.given_up), ("failures", self.failed))
        told = ", ".join(f"{seconds:.1f} s by {count} {name}" for name, (count, seconds) in parts if count)
        return f"candidates took {self.spent:.1f} CPU seconds; about {self.saved:.1f} s saved" + (
            f" ({told})" if told else ""
        )


def savings(candidates: Sequence[Candidate], repeats: int) -> Savings:
    """What the cascade saved in a run.

    Args:
        repeats: of a complete evaluation, on each recording.
    """
    scored = [c for c in candidates if c.score is not None and not c.repeated]
    cost = {c.trace: c.cpu_seconds for c in reversed(scored) if c.trace}
    whole = [c.cpu_seconds for c in scored if _runs(c) == repeats]
    typical = statistics.median(whole) if whole else 0.0
    again = [c for c in candidates if c.repeated]
    given_up = [c for c in scored if _runs(c) < repeats]
    failed = [c for c in candidates if c.failure is not None and not c.repeated]
    return Savings(
        spent=sum(c.cpu_seconds for c in candidates),
        repeated=(len(again), sum(max(0.0, cost.get(c.trace, 0.0) - c.cpu_seconds) for c in again)),
        given_up=(len(given_up), sum(c.cpu_seconds * (repeats - _runs(c)) / _runs(c) for c in given_up)),
        failed=(len(failed), sum(max(0.0, typical - c.cpu_seconds) for c in failed)),
    )


def _runs(candidate: Candidate) -> int:
    return min(len(p) for p in candidate.runs.values())
