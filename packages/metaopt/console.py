"""What runs print: headings, tables, a progress bar. Output only; nothing here decides anything."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn


def heading(text: str) -> None:
    """A line that opens a part of a run."""
    print(f"\n{text}\n{'-' * len(text)}", flush=True)


@contextlib.contextmanager
def progress(label: str, total: int) -> Iterator[Callable[[int, str], None]]:
    """A progress bar; the yielded function sets how many are done and a note (the best so far).

    On a terminal it redraws itself; in a log file it prints a line every tenth of the way instead.
    """
    console = Console()
    if not console.is_terminal:
        yield _lines(label, total)
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[note]}"),
    )
    with Progress(*columns, console=console) as bar:
        task = bar.add_task(label, total=total, note="")

        def update(done: int, note: str = "") -> None:
            bar.update(task, completed=done, note=note)

        yield update


def _lines(label: str, total: int) -> Callable[[int, str], None]:
    shown = [-1]

    def update(done: int, note: str = "") -> None:
        tenth = 10 * done // max(total, 1)
        if tenth > shown[0]:
            shown[0] = tenth
            print(f"{label}: {done}/{total}  {note}".rstrip(), flush=True)

    return update
