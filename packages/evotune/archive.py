"""What an evolution did, in one SQLite file: every prompt, reply, program, score, failure and time, committed as it
comes.

A reply is committed before it is evaluated, for it may have cost money; so a run that was killed can be taken up
again from here. The file is written by one thread, and may be read by others meanwhile (WAL).
"""

from __future__ import annotations

import dataclasses
import json
import sqlite3
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from metabench.errors import UserError

from .contract import Failure, FailureKind
from .evaluate import Evaluation
from .generators.base import Reply

_SCHEMA = """
CREATE TABLE IF NOT EXISTS run (key TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS candidate (
    call INTEGER PRIMARY KEY,           -- number of the call to the generator, from 0
    generation INTEGER NOT NULL,        -- 0 for the first programs
    operator TEXT NOT NULL,             -- kind of mutation, "" for the first programs
    parents TEXT NOT NULL,              -- JSON list of calls
    prompt TEXT NOT NULL,
    reply TEXT,                         -- NULL if there was none
    model TEXT, prompt_tokens INTEGER, reply_tokens INTEGER, finish TEXT,
    description TEXT, name TEXT, source TEXT,
    status TEXT NOT NULL,               -- "pending", "ok", or the kind of failure
    score REAL,                         -- mean P over the recordings
    runs TEXT,                          -- JSON {recording: [P of every run]}
    failure TEXT,                       -- JSON {kind, message, line, text}
    output TEXT,
    repeated INTEGER,                   -- 1 if the same program had been evaluated before
    trace TEXT,                         -- digest of its requests: two programs with the same one behave alike
    asked REAL, replied REAL, evaluated REAL, -- seconds since the epoch
    seconds REAL, cpu_seconds REAL      -- of the evaluation
);
"""
_TIMES = ("asked", "replied", "evaluated", "seconds", "cpu_seconds")


@dataclass(frozen=True)
class Candidate:
    """One row of the archive, as the rest of evotune reads it."""

    call: int
    generation: int
    operator: str
    parents: tuple[int, ...]
    prompt: str
    reply: str | None
    prompt_tokens: int | None
    reply_tokens: int | None
    description: str
    name: str
    source: str
    status: str
    score: float | None
    runs: dict[str, list[float]]
    failure: Failure | None
    repeated: bool
    trace: str = ""
    model: str = ""
    seconds: float = 0.0
    cpu_seconds: float = 0.0


class Archive:
    """An open archive. A context manager."""

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        self._connection = sqlite3.connect(self.path, isolation_level=None)
        self._connection.row_factory = sqlite3.Row

    @classmethod
    def create(cls, path: Path | str, settings: Mapping[str, Any]) -> Archive:
        """A new archive for a run with these settings.

        Raises:
            UserError: there is one already.
        """
        path = Path(path)
        if path.exists():
            raise UserError(f"{path} exists already; resume that run, or choose another folder")
        path.parent.mkdir(parents=True, exist_ok=True)
        begun = path.with_name(
            path.name + ".begun"
        )  # killed while it is being made, a run leaves none rather than half of one
        begun.unlink(missing_ok=True)
        with cls(begun) as archive:
            archive._connection.executescript(_SCHEMA)
            told = json.dumps(settings, sort_keys=True)
            archive._connection.execute("INSERT INTO run VALUES ('settings', ?)", (told,))
        begun.rename(path)
        archive = cls(path)
        archive._connection.execute("PRAGMA journal_mode=WAL")
        return archive

    @classmethod
    def open(cls, path: Path | str) -> Archive:
        """The archive of an earlier run.

        Raises:
            UserError: there is none, or the file is not one.
        """
        path = Path(path)
        if not path.is_file():
            raise UserError(f"{path} is no archive of an evolution")
        archive = cls(path)
        try:
            archive.settings()
        except (sqlite3.DatabaseError, TypeError) as error:
            archive.close()
            raise UserError(f"{path} is no archive of an evolution: {error}") from error
        return archive

    def __enter__(self) -> Archive:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file."""
        self._connection.close()

    def settings(self) -> dict[str, Any]:
        """What the run was started with."""
        row = self._connection.execute("SELECT value FROM run WHERE key = 'settings'").fetchone()
        return json.loads(row[0])

    def add_reply(
        self,
        call: int,
        generation: int,
        operator: str,
        parents: list[int],
        prompt: str,
        reply: Reply | None,
        asked: float,
    ) -> None:
        """Record a call, whether or not it brought a reply."""
        said: dict[str, Any] = {}
        if reply is not None:
            said = {"reply": reply.text, "model": reply.model, "finish": reply.finish}
            said |= {"prompt_tokens": reply.prompt_tokens, "reply_tokens": reply.reply_tokens}
        self._insert(
            call=call, generation=generation, operator=operator, parents=json.dumps(parents), prompt=prompt, status="pending",
            asked=asked, replied=time.time(), **said,
        )  # fmt: skip

    def add_evaluation(self, call: int, description: str, source: str, evaluation: Evaluation) -> None:
        """Record what became of a call's program."""
        columns = {
            "description": description, "name": evaluation.name, "source": source, "status": evaluation.status,
            "score": evaluation.score, "runs": json.dumps(dict(evaluation.runs)), "failure": _told(evaluation.failure),
            "output": evaluation.output, "repeated": int(evaluation.repeated), "trace": evaluation.trace,
            "evaluated": time.time(), "seconds": evaluation.seconds, "cpu_seconds": evaluation.cpu_seconds,
        }  # fmt: skip
        assignments = ", ".join(f"{column} = ?" for column in columns)
        self._connection.execute(f"UPDATE candidate SET {assignments} WHERE call = ?", (*columns.values(), call))

    def _insert(self, **columns: Any) -> None:
        names, marks = ", ".join(columns), ", ".join("?" * len(columns))
        self._connection.execute(f"INSERT INTO candidate ({names}) VALUES ({marks})", tuple(columns.values()))

    def candidates(self) -> list[Candidate]:
        """All candidates, by call."""
        return [_candidate(row) for row in self._connection.execute("SELECT * FROM candidate ORDER BY call")]

    def find(self, call: int) -> Candidate | None:
        """The candidate of a call, if it was recorded."""
        row = self._connection.execute("SELECT * FROM candidate WHERE call = ?", (call,)).fetchone()
        return _candidate(row) if row else None

    def replies(self) -> list[str | None]:
        """The texts of all replies, by call."""
        return [row["reply"] for row in self._connection.execute("SELECT reply FROM candidate ORDER BY call")]

    def without_times(self) -> Iterator[tuple[Any, ...]]:
        """Every candidate's columns but the clock's: what two runs with the same seed share."""
        for row in self._connection.execute("SELECT * FROM candidate ORDER BY call"):
            yield tuple(row[key] for key in row.keys() if key not in _TIMES)  # noqa: SIM118 - a Row iterates over its values


def _told(failure: Failure | None) -> str | None:
    return None if failure is None else json.dumps(dataclasses.asdict(failure))


def _candidate(row: sqlite3.Row) -> Candidate:
    told = json.loads(row["failure"] or "null")
    failure = Failure(**{**told, "kind": FailureKind(told["kind"])}) if told else None
    return Candidate(
        row["call"], row["generation"], row["operator"], tuple(json.loads(row["parents"])), row["prompt"], row["reply"],
        row["prompt_tokens"], row["reply_tokens"],
        row["description"] or "", row["name"] or "", row["source"] or "", row["status"], row["score"],
        json.loads(row["runs"] or "{}"), failure, bool(row["repeated"]),
        row["trace"] or "", row["model"] or "", row["seconds"] or 0.0, row["cpu_seconds"] or 0.0,
    )  # fmt: skip
