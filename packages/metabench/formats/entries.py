"""What the file formats have in common: one evaluation as an entry, and many entries as a recording."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from .. import expression
from ..details import Details
from ..errors import UserError
from ..recording import CORRECT, Recording
from ..space import Configuration, Space

NEVER_MEASURED = 1e20  # old Kernel Tuner versions wrote this number for a failure
HIGHER_IS_BETTER = {
    "time": False, "energy": False, "cost": False, "loss": False, "fitness": True, "GFLOP/s": True, "TFLOP/s": True,
    "GB/s": True, "TB/s": True, "GFLOPS/W": True, "TFLOPS/W": True, "GFLOP/J": True, "TFLOP/J": True,
}  # fmt: skip
"""Which way known objectives go, as in Kernel Tuner; of any other the reader must say it."""


@dataclass
class Entry:
    """One evaluation, as a file states it.

    Attributes:
        where: file and entry, for messages.
        numbers: measured numbers by name, the objective among them.
        status: one of `metabench.recording.STATUSES`.
        parts: {name of `metabench.details.PARTS`: milliseconds}.
        runs: kernel runs, milliseconds, or None.
    """

    where: str
    configuration: Configuration
    numbers: dict[str, float]
    status: str = CORRECT
    parts: dict[str, float] = field(default_factory=dict)
    runs: list[float] | None = None
    timestamp: str | None = None
    extra: dict[str, Any] = field(default_factory=dict)


def is_number(value: Any) -> bool:
    """Whether a JSON value is a number; true and false are not."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def are_numbers(values: Sequence[Any]) -> bool:
    """Whether all JSON values of a list are numbers. (There are millions of them, in the lists of single runs.)"""
    return {int, float}.issuperset(map(type, values))


def direction(objective: str, maximize: bool | None, stated: bool | None, where: Path) -> bool:
    """Whether an objective is maximised: what the caller says, else what the file says, else what is usual.

    Raises:
        UserError: none of the three says it.
    """
    if maximize is not None:
        return bool(maximize)
    if stated is not None:
        return bool(stated)
    if objective in HIGHER_IS_BETTER:
        return HIGHER_IS_BETTER[objective]
    raise UserError(
        f"{where}: is a higher {objective!r} better? Say maximize=true or maximize=false; "
        f"it is known of {', '.join(HIGHER_IS_BETTER)}"
    )


def assemble(
    path: Path,
    names: Sequence[str],
    entries: Sequence[Entry],
    space: Space | None,
    objective: str,
    maximize: bool,
    meta: dict[str, Any],
    unit: str | None = None,
) -> Recording:
    """A recording from entries in any order, joined to the space by configuration.

    Raises:
        UserError: an entry without the objective, without any cost, or outside the space; a space that is not covered.
    """
    space = space or Space.from_configurations(names, [e.configuration for e in entries])
    rows = _in_row_order(path, _ordered(path, names, entries, space), space)
    names = space.names
    values, status = _values(rows, names, objective, meta), np.array([e.status for e in rows], dtype="<U16")
    details = Details.of(
        [e.parts for e in rows], [e.runs for e in rows], [e.timestamp for e in rows], [e.extra for e in rows]
    )
    costs = details.cost()
    if (bad := ~(costs > 0)).any():
        first = rows[int(np.flatnonzero(bad)[0])]
        raise UserError(
            f"{first.where}: no cost; expected a positive compile, verification, framework or kernel run time"
        )
    present = dict.fromkeys(name for e in rows for name in e.numbers if name != objective)
    metrics = {name: np.array([e.numbers.get(name, np.nan) for e in rows]) for name in present}
    kernel, device = kernel_and_device(path)
    unit = unit or meta.get("objective_unit") or ("ms" if objective == "time" else objective)
    return Recording(
        kernel, device, space, values, costs, status, objective, unit, maximize, metrics, meta, details=details
    )


def _ordered(path: Path, names: Sequence[str], entries: Sequence[Entry], space: Space) -> Sequence[Entry]:
    """Entries with their values in the order of the space's parameters, which a file need not keep."""
    if tuple(names) == space.names:
        return entries
    if set(names) != set(space.names):
        raise UserError(f"{path} has the parameters {', '.join(names)}; its space has {', '.join(space.names)}")
    places = [list(names).index(name) for name in space.names]
    for entry in entries:
        entry.configuration = tuple(entry.configuration[i] for i in places)
    return entries


def _in_row_order(path: Path, entries: Sequence[Entry], space: Space) -> list[Entry]:
    found: dict[int, Entry] = {}
    for entry in entries:
        row = space.find(entry.configuration)
        if row is None:
            raise UserError(f"{entry.where}: configuration {entry.configuration} is not in the space it is read for")
        found[row] = entry
    if missing := [row for row in range(len(space)) if row not in found]:
        raise UserError(
            f"{path} lacks {len(missing)} of {len(space)} configurations, the first {space[missing[0]]}: "
            "a recording must be whole"
        )
    return [found[row] for row in range(len(space))]


def _values(rows: Sequence[Entry], names: Sequence[str], objective: str, meta: Mapping[str, Any]) -> np.ndarray:
    """The objective, float64 (n,); entries without a proper number become failures."""
    values = np.full(len(rows), np.nan)
    correct = [e for e in rows if e.status == CORRECT]
    stored = any(objective in e.numbers for e in correct) or not correct
    derive = None if stored else _derivation(correct, names, objective, meta)
    for row, entry in enumerate(rows):
        if entry.status != CORRECT:
            continue
        value = derive(entry) if derive else entry.numbers.get(objective)
        if value is None:
            raise UserError(
                f"{entry.where}: no number under {objective!r}; it has numbers under: {', '.join(sorted(entry.numbers))}"
            )
        if np.isnan(value) or value == NEVER_MEASURED:
            entry.status = "runtime"
        else:
            values[row] = value
    return values


def _derivation(correct: Sequence[Entry], names: Sequence[str], objective: str, meta: Mapping[str, Any]) -> Any:
    """The objective as a function of an entry, from an expression such as "1e-9 * flops / time".

    Names are measured numbers, parameters, or numbers that the file's head states.
    """
    measured = {name for e in correct for name in e.numbers}
    head = {name: value for name, value in meta.items() if is_number(value)}
    first = correct[0]
    known = f"known are {', '.join(sorted({*measured, *names, *head}))}"
    try:
        tree = expression.parse(objective)
    except UserError as error:
        raise UserError(f"{first.where}: no number under {objective!r}, and it is no expression; {known}") from error
    if unknown := [n for n in expression.free_names(tree) if n not in measured | set(names) | set(head)]:
        raise UserError(f"{first.where}: no number under {', '.join(map(repr, unknown))}; {known}")
    compute = expression.compile_row(tree)

    def of(entry: Entry) -> float:
        scope = {**head, **dict(zip(names, entry.configuration, strict=True)), **entry.numbers}
        try:
            return float(compute(scope))
        except Exception as error:
            raise UserError(f"{entry.where}: {objective!r} fails: {type(error).__name__}: {error}") from error

    return of


def kernel_and_device(path: Path) -> tuple[str, str]:
    """(kernel, device) from where the file lies: kernels/KERNEL/recordings/DEVICE, or KERNEL/DEVICE."""
    device = path.name.removesuffix(".gz").removesuffix(".json")
    folder = path.resolve().parent
    return (folder.parent.name if folder.name == "recordings" else folder.name), device
