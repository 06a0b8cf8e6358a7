"""What a recording has measured so far, on disk: a JSON line per outcome. A killed run loses at most the line it was writing."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from metabench.errors import UserError
from metabench.files import write_atomic

from .outcome import Outcome


class Journal:
    """The file beside a recording in the making.

    Args:
        path: of the journal.
        identity: what must be equal for outcomes to belong together: kernel, source, space, flags, compiler, sizes.

    Raises:
        UserError: there is a journal of something else at this path.
    """

    def __init__(self, path: Path, identity: Mapping[str, Any]) -> None:
        self.path = path
        self.outcomes: dict[tuple[int, int], Outcome] = {}
        identity = json.loads(json.dumps(identity))  # as it will be read back
        if path.exists():
            self._read(identity)
        else:
            write_atomic(path, json.dumps(identity) + "\n")
        self._file = path.open("a")

    def add(self, turn: int, row: int, outcome: Outcome) -> None:
        """Append an outcome; it is on disk when this returns."""
        self.outcomes[turn, row] = outcome
        self._file.write(json.dumps({"pass": turn, "row": row, **outcome.to_dict()}) + "\n")
        self._file.flush()
        os.fsync(self._file.fileno())

    def close(self, remove: bool = False) -> None:
        """Close the file, and delete it if its content is kept elsewhere now."""
        self._file.close()
        if remove:
            self.path.unlink(missing_ok=True)

    def _read(self, identity: Mapping[str, Any]) -> None:
        lines = self.path.read_text().split("\n")
        try:
            there = json.loads(lines[0])
        except ValueError:
            there = {}
        different = sorted(k for k in identity if there.get(k) != identity[k])
        if different:
            raise UserError(
                f"{self.path} was begun with another {', '.join(different)}; delete it to record anew, or record elsewhere"
            )
        for line in lines[1:-1]:  # what follows the last line end was being written when the run was killed
            entry = json.loads(line)
            place = entry.pop("pass"), entry.pop("row")
            self.outcomes[place] = Outcome.from_dict(entry)
        if lines[-1]:
            write_atomic(self.path, "\n".join(lines[:-1]) + "\n")
