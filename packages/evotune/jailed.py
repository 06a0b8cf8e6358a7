"""A Python file as an optimizer that never runs in this process: scoring hands it whole runs, the jail has them."""

from __future__ import annotations

import ast
import atexit
import functools
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

from metabench.errors import UserError
from metabench.recording import Recording
from metabench.replay import Limits, Session, Trace

from .contract import Rejected, check, imported
from .jail import Jail, JailLimits
from .syntax import parse


@dataclass(frozen=True)
class JailedFile:
    """What `metabench.score` takes for an optimizer, and asks to do its own runs. It can be pickled.

    A failure of the program is the trace's `error`, as its kind, reason and line.

    Raises:
        UserError: there is no such file.
    """

    path: str
    limits: JailLimits = field(default_factory=JailLimits)

    def __post_init__(self) -> None:
        if not Path(self.path).is_file():
            raise UserError(f"there is no file {self.path}")

    def __call__(self) -> NoReturn:
        """Refuse: an optimizer in this process is what this is there to prevent."""
        raise TypeError(f"{self.path} runs in the jail only")

    def replay(self, recording: Recording, seed: int, name: str, session: Session) -> Trace:
        """One run: as `metabench.replay.replay`, with the program in a process of its own."""
        source = Path(self.path).read_text()
        try:
            optimizer = check(source)
        except Rejected as rejected:
            return session.trace(name, seed, str(rejected.failure))
        outcome = _jail(self.limits).run(source, optimizer, recording, Limits(), seed, imported(source), session)
        outcome.trace.optimizer = name
        return outcome.trace

    @property
    def provenance(self) -> dict[str, Any]:
        """The literal that the file assigns to PROVENANCE, read and not executed; {} where there is none."""
        try:
            tree = parse(Path(self.path).read_text())
            for node in tree.body:
                if isinstance(node, ast.Assign) and any(getattr(t, "id", "") == "PROVENANCE" for t in node.targets):
                    return dict(ast.literal_eval(node.value))
        except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError):
            pass
        return {}


@functools.cache
def _jail(limits: JailLimits) -> Jail:
    """One jail for all runs of this process under the same limits: a serving process is started once."""
    jail = Jail(limits)
    jail.warn()
    atexit.register(jail.close)
    return jail
