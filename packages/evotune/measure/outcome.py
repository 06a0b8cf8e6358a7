"""What measuring one configuration came to. Every end is an outcome; none is an exception."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

CORRECT = "correct"
FAILURES = ("compile", "runtime", "verification", "timeout")

_LONGEST_ERROR = 600  # characters kept of a message; a compiler can write megabytes


@dataclass(frozen=True)
class Outcome:
    """One configuration, measured.

    Attributes:
        configuration: {parameter: value}.
        status: "correct" or one of `FAILURES`.
        time: milliseconds, the least of `times`; None for a failure.
        times: milliseconds of every timed run, in order.
        compile_time, verification_time, benchmark_time, framework_time: milliseconds that the parts of the evaluation took;
            waiting for another worker's timing to end is in none of them.
        strategy_time: milliseconds that the optimizer took to ask for it.
        error: the reason of a failure, trimmed.
        timestamp: when it was finished, UTC, ISO 8601.
    """

    configuration: dict[str, Any]
    status: str
    time: float | None = None
    times: tuple[float, ...] = ()
    compile_time: float = 0.0
    verification_time: float = 0.0
    benchmark_time: float = 0.0
    framework_time: float = 0.0
    strategy_time: float = 0.0
    error: str = ""
    timestamp: str = field(
        default_factory=lambda: datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds")
    )

    @property
    def correct(self) -> bool:
        """Whether there is a time."""
        return self.status == CORRECT

    @property
    def cost(self) -> float:
        """Seconds that the evaluation took, with everything but waiting; counted as the recordings count it."""
        return (self.compile_time + self.verification_time + self.framework_time + sum(self.times)) / 1e3

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {**asdict(self), "times": list(self.times)}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Outcome:
        """The inverse of `to_dict`."""
        return cls(**{**data, "times": tuple(data["times"])})


def trimmed(message: str, folder: str = "") -> str:
    """The telling part of an error message: from the first line that speaks of an error, without temporary names."""
    lines = message.replace(folder, "").strip().splitlines() if folder else message.strip().splitlines()
    first = next((i for i, line in enumerate(lines) if "error" in line.lower()), 0)
    text = "\n".join(lines[first:])
    return text if len(text) <= _LONGEST_ERROR else text[: _LONGEST_ERROR - 4] + " ..."
