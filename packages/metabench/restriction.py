"""Restrictions of a search space: text, a lambda or any callable, all with one meaning."""

from __future__ import annotations

import ast
import functools
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from . import expression
from .errors import UserError

RestrictionLike = str | Callable[[dict[str, Any]], Any]


@dataclass(frozen=True)
class Restriction:
    """One condition that a valid configuration fulfils.

    Attributes:
        names: parameters it reads, in the space's order.
        text: its source, or the callable's name.
        row: its value for one configuration {name: value}; any true value means valid.
        tree: its parsed text, or None for a callable (which is asked row by row).
    """

    names: tuple[str, ...]
    text: str
    row: Callable[[Mapping[str, Any]], Any]
    tree: ast.Expression | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        # Compiled code cannot be pickled; its text can, and means the same on the other side. A callable's `row` can if it can.
        if self.tree is None:
            return Restriction, (self.names, self.text, self.row)
        return _from_text, (self.text, self.names)

    def holds(self, columns: Mapping[str, np.ndarray]) -> np.ndarray:
        """Which rows fulfil it: bool (n,), for columns {name: (n,)} that include `names`."""
        count = len(next(iter(columns.values())))
        if self.tree is not None:
            try:
                verdict = expression.evaluate_columns(self.tree, columns)
                return np.broadcast_to(np.asarray(verdict) != 0, (count,))
            except expression.NotVectorizable:
                pass
        return self._holds_row_by_row(columns, count)

    def _holds_row_by_row(self, columns: Mapping[str, np.ndarray], count: int) -> np.ndarray:
        lists = [columns[name].tolist() for name in self.names]
        rows = (dict(zip(self.names, values, strict=True)) for values in zip(*lists, strict=True))
        if not lists:
            rows = ({} for _ in range(count))
        return np.fromiter((self._ask(row) for row in rows), dtype=bool, count=count)

    def _ask(self, row: dict[str, Any]) -> bool:
        try:
            return bool(self.row(row))
        except Exception as error:
            raise UserError(f"restriction {self.text!r} fails on {row}: {type(error).__name__}: {error}") from error


def read(
    restrictions: RestrictionLike | Iterable[RestrictionLike] | None, names: Sequence[str]
) -> tuple[Restriction, ...]:
    """Restrictions in any of Kernel Tuner's forms: none, one, or a list of texts and callables of a dict.

    A conjunction is split at its top level, so that each part can prune as soon as its parameters are known.

    Raises:
        UserError: a text that is no expression or reads an unknown parameter; something that is neither text nor callable.
    """
    if restrictions is None:
        return ()
    if isinstance(restrictions, str) or callable(restrictions):
        restrictions = [restrictions]
    return tuple(part for one in restrictions for part in _read_one(one, names))


def _read_one(restriction: RestrictionLike, names: Sequence[str]) -> list[Restriction]:
    if callable(restriction):
        return [_from_callable(restriction, names)]
    if not isinstance(restriction, str):
        raise UserError(
            f"a restriction is text or a callable of a dict of parameters, not {type(restriction).__name__}"
        )
    tree = expression.parse(restriction)
    conjuncts = (
        tree.body.values if isinstance(tree.body, ast.BoolOp) and isinstance(tree.body.op, ast.And) else [tree.body]
    )
    return [_from_tree(ast.Expression(part), names) for part in conjuncts]


def _from_callable(restriction: Callable[..., Any], names: Sequence[str]) -> Restriction:
    """A callable of one dict, or of parameters by name (`lambda block_x, block_y: ...`)."""
    text = getattr(restriction, "__name__", repr(restriction))
    arguments = list(inspect.signature(restriction).parameters)
    by_name = tuple(name for name in names if name in arguments)
    if arguments and len(by_name) == len(arguments):
        return Restriction(by_name, text, functools.partial(_ask_by_name, restriction, by_name))
    if len(arguments) != 1:
        raise UserError(
            f"restriction {text!r} takes {', '.join(arguments) or 'nothing'}; it must take one dict, or parameters by name"
        )
    return Restriction(tuple(names), text, functools.partial(_ask_with_copy, restriction))


def _ask_by_name(restriction: Callable[..., Any], names: Sequence[str], row: Mapping[str, Any]) -> Any:
    return restriction(**{name: row[name] for name in names})


def _ask_with_copy(restriction: Callable[..., Any], row: Mapping[str, Any]) -> Any:
    return restriction(dict(row))


def _from_text(text: str, names: Sequence[str]) -> Restriction:
    return _from_tree(expression.parse(text), names)


def _from_tree(tree: ast.Expression, names: Sequence[str]) -> Restriction:
    text = ast.unparse(tree)
    read_names = expression.free_names(tree)
    if unknown := [n for n in read_names if n not in names]:
        raise UserError(
            f"restriction {text!r} reads unknown parameters {', '.join(unknown)}; the space has {', '.join(names)}"
        )
    in_order = tuple(name for name in names if name in read_names)
    return Restriction(in_order, text, expression.compile_row(tree), tree)
