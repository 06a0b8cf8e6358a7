"""The `replay` generator: the replies of an earlier run, from its archive; a run is reproduced without a key, bit for bit."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from metabench.errors import UserError

from .base import Generator, Messages, NoReply, Reply


class ReplayGenerator(Generator):
    """Recorded replies, by the number of the call.

    Args:
        replies: the texts; None where the recorded call brought none.
    """

    def __init__(self, replies: Sequence[str | None]) -> None:
        super().__init__(model="replay")
        self.replies = list(replies)

    @classmethod
    def from_file(cls, path: Path | str) -> ReplayGenerator:
        """From an archive (.sqlite) or a JSON list of texts.

        Raises:
            UserError: the file cannot be read, or holds no replies.
        """
        path = Path(path)
        if not path.is_file():
            raise UserError(f"{path} is no file; generator.path must name a run's archive or a JSON list of replies")
        if path.suffix == ".json":
            replies = json.loads(path.read_text())
            if not isinstance(replies, list):
                raise UserError(f"{path} holds no list of replies")
            return cls(replies)
        from ..archive import Archive

        with Archive.open(path) as archive:
            return cls(archive.replies())

    def reply(self, messages: Messages, call: int) -> Reply:
        """The recorded reply of that call."""
        text = self.replies[call] if call < len(self.replies) else None
        if text is None:
            raise NoReply(f"the recording has no reply number {call}")
        return Reply(text, self.model)
