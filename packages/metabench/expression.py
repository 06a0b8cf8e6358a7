"""Python expressions in space definitions, read by a real parser.

A T1 file states restrictions and value lists as Python text ("KWG % ((MDIMC * NDIMC)/MDIMA) == 0", "[2**i for i in range(6)]").
The text is data from a stranger, so it is never handed to a bare eval: it is parsed, every node must be on the list below (no
attribute, no subscript, no keyword, only the named functions), and only then compiled, with those functions as its only
globals.

`compile_row` evaluates one configuration, with Python's own meaning: the reference. `evaluate_columns` evaluates all
configurations at once in NumPy: the fast path, which declines what it could get wrong (`NotVectorizable`).
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from .errors import UserError

FUNCTIONS: dict[str, Callable[..., Any]] = {
    "abs": abs, "min": min, "max": max, "round": round, "int": int, "float": float, "bool": bool,
    "len": len, "sum": sum, "range": range, "list": list, "sorted": sorted, "any": any, "all": all,
}  # fmt: skip

_ALLOWED = (
    ast.Expression, ast.BoolOp, ast.And, ast.Or, ast.BinOp, ast.UnaryOp, ast.Compare, ast.IfExp, ast.operator, ast.unaryop,
    ast.cmpop, ast.Name, ast.Load, ast.Store, ast.Constant, ast.Tuple, ast.List, ast.Set, ast.Call, ast.ListComp,
    ast.GeneratorExp, ast.comprehension,
)  # fmt: skip


class NotVectorizable(Exception):
    """The expression has no NumPy form that surely means the same."""


def parse(text: str) -> ast.Expression:
    """Parse `text` and check every node.

    Raises:
        UserError: it is no Python expression, or uses what is not allowed; the message quotes it.
    """
    try:
        tree = ast.parse(text.strip(), mode="eval")
    except (SyntaxError, ValueError) as error:
        raise UserError(f"{text!r} is not a Python expression: {error}") from error
    for node in ast.walk(tree):
        _check(node, text)
    return tree


def _check(node: ast.AST, text: str) -> None:
    if not isinstance(node, _ALLOWED) or isinstance(node, ast.MatMult):
        raise UserError(
            f"{text!r} uses {type(node).__name__}; allowed are constants, parameters, arithmetic, comparisons, and/or/not, "
            f"conditional expressions, list comprehensions and the functions {', '.join(FUNCTIONS)}"
        )
    if isinstance(node, ast.Call) and (
        node.keywords or not isinstance(node.func, ast.Name) or node.func.id not in FUNCTIONS
    ):
        raise UserError(f"{text!r} calls {ast.unparse(node.func)}; allowed functions: {', '.join(FUNCTIONS)}")


def free_names(tree: ast.Expression) -> list[str]:
    """Names the expression reads, in order of appearance, without the functions and its own loop variables."""
    bound = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    read = [n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)]
    return [n for n in dict.fromkeys(read) if n not in bound and n not in FUNCTIONS]


def compile_row(tree: ast.Expression) -> Callable[[Mapping[str, Any]], Any]:
    """The expression as a function of one configuration {name: value}."""
    code = compile(tree, "<expression>", "eval")
    # Globals, not locals: a comprehension's body sees only the former.
    return lambda values: eval(code, {"__builtins__": {}, **FUNCTIONS, **values})


def constant(text: str) -> Any:
    """The value of an expression that reads no parameter, such as a T1 list of values."""
    tree = parse(text)
    if unknown := free_names(tree):
        raise UserError(f"{text!r} reads unknown names: {', '.join(unknown)}")
    return compile_row(tree)({})


# ---------------------------------------------------------------------------------------------------------------------
# All configurations at once

_BINARY = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod,
}  # fmt: skip
_COMPARE = {
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}  # fmt: skip
_LARGEST = 2**31  # factors up to here multiply without overflow in int64


def evaluate_columns(node: ast.AST, columns: Mapping[str, np.ndarray]) -> Any:
    """Evaluate `node` on columns (n,) of int64 or float64; returns an (n,) array or a scalar.

    Raises:
        NotVectorizable: strings, powers, calls, division by zero, numbers that could overflow: ask `compile_row`.
    """
    match node:
        case ast.Expression(body=body):
            return evaluate_columns(body, columns)
        case ast.Constant(value=value) if isinstance(value, int | float) and abs(value) < 2**53:
            return int(value) if isinstance(value, bool) else value
        case ast.Name(id=name) if name in columns and columns[name].dtype.kind in "if":
            return columns[name]
        case ast.BoolOp(op=op, values=values):
            # As in Python, `a or b` is one of its operands, not a truth value: x - (x and y) must come out right.
            *others, result = [evaluate_columns(value, columns) for value in values]
            for part in reversed(others):
                pair = (result, part) if isinstance(op, ast.And) else (part, result)
                result = np.where(_truth(part), *pair)
            return result
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return np.logical_not(_truth(evaluate_columns(operand, columns)))
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_number(evaluate_columns(operand, columns))
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _BINARY:
            return _binary(op, _number(evaluate_columns(left, columns)), _number(evaluate_columns(right, columns)))
        case ast.Compare(left=left, ops=ops, comparators=comparators) if all(type(op) in _COMPARE for op in ops):
            return _compare(evaluate_columns(left, columns), ops, [evaluate_columns(c, columns) for c in comparators])
    raise NotVectorizable(ast.unparse(node))


def _truth(value: Any) -> Any:
    return np.asarray(value) != 0


def _number(value: Any) -> Any:
    """Python counts True as 1; NumPy would add truth values as `or`."""
    array = np.asarray(value)
    return array.astype(np.int64) if array.dtype == bool else array


def _binary(op: ast.operator, left: np.ndarray, right: np.ndarray) -> np.ndarray:
    if isinstance(op, ast.Div | ast.FloorDiv | ast.Mod) and np.any(right == 0):
        raise NotVectorizable("division by zero somewhere: `x == 0 or 64 % x == 0` is fine in Python, row by row")
    largest = max((np.abs(side).max(initial=0) for side in (left, right)), default=0)
    if largest > _LARGEST:
        raise NotVectorizable("numbers that could overflow")
    return _BINARY[type(op)](left, right)


def _compare(left: Any, ops: list[ast.cmpop], others: list[Any]) -> Any:
    result: Any = True
    for op, right in zip(ops, others, strict=True):
        result = np.logical_and(result, _COMPARE[type(op)](left, right))
        left = right
    return result
