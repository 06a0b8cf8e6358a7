"""What a generated optimizer is, and what is checked of its source before it runs.

It is Kernel Tuner's OptAlg: a class that can be made without arguments and called with `(func, searchspace)`.
`func(config)` is the cost of a configuration, lower is better, +inf for a failure; `func.budget_spent_fraction` goes
from 0 to 1; the end of the budget is an exception that is not to be caught. `searchspace` has Kernel Tuner's
Searchspace interface.

The check reads the source and never runs it. It is there for good messages and to save evaluations; what keeps a
hostile program in is the jail.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from enum import StrEnum

from .syntax import parse


class FailureKind(StrEnum):
    """Every way in which a candidate can fail."""

    NO_REPLY = "no-reply"
    """The generator gave no reply, or one without a program."""
    SYNTAX = "syntax"
    IMPORT = "import"
    INTERFACE = "interface"
    FORBIDDEN = "forbidden"
    TIMEOUT = "timeout"
    MEMORY = "memory"
    CRASH = "crash"
    ILLEGAL_ONLY = "illegal-only"
    """It asked, but never for a valid configuration."""
    NO_EVALUATION = "no-evaluation"
    """It returned without asking for anything."""
    NO_IMPROVEMENT = "no-improvement"
    """It evaluated one configuration or only failing ones, and stopped with most of its budget left."""


@dataclass(frozen=True)
class Failure:
    """What went wrong, where.

    Attributes:
        line: number of the failing line, from 1; None if it is not known.
        text: that line.
    """

    kind: FailureKind
    message: str
    line: int | None = None
    text: str = ""

    def __str__(self) -> str:
        where = f" (line {self.line}: {self.text.strip()})" if self.line else ""
        return f"{self.kind}: {self.message}{where}"


class Rejected(Exception):
    """A source that cannot be a candidate."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(str(failure))
        self.failure = failure


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


ALLOWED_IMPORTS = _words("""
    __future__ abc bisect collections copy dataclasses enum functools heapq itertools logging math numbers numpy operator random
    re scipy statistics string time typing warnings
""")
"""Top-level modules that a candidate may import."""

ALLOWED_KERNEL_TUNER = _words("""
    kernel_tuner.strategies.wrapper kernel_tuner.strategies.common kernel_tuner.searchspace kernel_tuner.util
""")
"""Kernel Tuner's modules that a candidate may import; where it runs, light stand-ins take their place."""

FORBIDDEN_IMPORTS = _words("""
    os sys subprocess socket ctypes multiprocessing threading signal shutil pathlib tempfile pickle marshal importlib builtins
    inspect gc io asyncio concurrent urllib http requests posix pty resource code codeop faulthandler
""")
_FORBIDDEN_NAMES = _words("""
    eval exec compile open __import__ input breakpoint globals exit quit __builtins__
""")
_FORBIDDEN_ATTRIBUTES = _words("""
    __globals__ __builtins__ __subclasses__ __code__ __closure__ __mro__ __loader__ __spec__ __import__ f_back f_globals f_locals
    gi_frame tb_frame ctypeslib memmap fromfile tofile savez savez_compressed savetxt loadtxt genfromtxt
""")


def check(source: str) -> str:
    """Check a candidate's source.

    Returns:
        The name of the class that is the optimizer.

    Raises:
        Rejected: with the kind of failure and the line.
    """
    tree = _parse(source)
    _check_imports(tree, source)
    _check_names(tree, source)
    return _optimizer(tree, source)


def optimizer_class(source: str) -> str:
    """The name of the class that is the optimizer, whatever else a source does: for files that are trusted.

    Raises:
        Rejected: the source is no Python, or has no such class.
    """
    return _optimizer(_parse(source), source)


def _parse(source: str) -> ast.Module:
    try:
        return parse(source)
    except SyntaxError as error:
        raise Rejected(Failure(FailureKind.SYNTAX, error.msg, error.lineno, error.text or "")) from error
    except (ValueError, RecursionError, MemoryError) as error:  # NUL bytes; nesting that the parser gives up on
        raise Rejected(Failure(FailureKind.SYNTAX, str(error) or type(error).__name__)) from error


def _check_imports(tree: ast.Module, source: str) -> None:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            modules = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            modules = ["." * node.level + (node.module or "")]
        else:
            continue
        for module in modules:
            _check_import(module, node, source)


def _check_import(module: str, node: ast.stmt, source: str) -> None:
    top = module.split(".")[0]
    if top in ALLOWED_IMPORTS or module in ALLOWED_KERNEL_TUNER:
        return
    if top in FORBIDDEN_IMPORTS:
        raise _rejected(FailureKind.FORBIDDEN, f"{module} may not be imported", node, source)
    allowed = ", ".join(sorted(ALLOWED_IMPORTS - {"__future__"}) + sorted(ALLOWED_KERNEL_TUNER))
    raise _rejected(FailureKind.IMPORT, f"{module} is not available; available are {allowed}", node, source)


def _check_names(tree: ast.Module, source: str) -> None:
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and node.id in _FORBIDDEN_NAMES:
            raise _rejected(FailureKind.FORBIDDEN, f"{node.id} may not be used", node, source)
        if isinstance(node, ast.Attribute) and node.attr in _FORBIDDEN_ATTRIBUTES:
            raise _rejected(FailureKind.FORBIDDEN, f".{node.attr} may not be used", node, source)


def _optimizer(tree: ast.Module, source: str) -> str:
    """The class that is the optimizer: the last that derives from OptAlg, else the last that can be called."""
    classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
    callable_ones = [name for name in classes if _method(name, "__call__", classes)]
    derived = [name for name in callable_ones if _derives(name, classes)]
    if not callable_ones:
        raise Rejected(
            Failure(FailureKind.INTERFACE, "there is no class with a method __call__(self, func, searchspace)")
        )
    chosen = (derived or callable_ones)[-1]
    _check_signature(classes, chosen, source)
    return chosen


def _method(name: str, method: str, classes: dict[str, ast.ClassDef]) -> ast.FunctionDef | None:
    """A method of a class, its own or inherited from another class of the module."""
    node = classes.get(name)
    if node is None:
        return None
    for item in node.body:
        if isinstance(item, ast.FunctionDef) and item.name == method:
            return item
    others = [base for base in _bases(node) if base != name]
    return next((found for base in others if (found := _method(base, method, classes))), None)


def _bases(node: ast.ClassDef) -> list[str]:
    return [b.id if isinstance(b, ast.Name) else b.attr for b in node.bases if isinstance(b, ast.Name | ast.Attribute)]


def _derives(name: str, classes: dict[str, ast.ClassDef]) -> bool:
    """Whether a class derives from OptAlg, directly or through classes of the module."""
    if name not in classes:
        return name == "OptAlg"
    return name != "OptAlg" and any(_derives(base, classes) for base in _bases(classes[name]) if base != name)


def _check_signature(classes: dict[str, ast.ClassDef], name: str, source: str) -> None:
    call, init = _method(name, "__call__", classes), _method(name, "__init__", classes)
    assert call is not None
    required, most = _arity(call)
    if required > 3 or most < 3 or call.decorator_list:
        raise _rejected(FailureKind.INTERFACE, f"{name}.__call__ must take (self, func, searchspace)", call, source)
    if init is not None and _arity(init)[0] > 1:
        raise _rejected(FailureKind.INTERFACE, f"{name}.__init__ must work without arguments", init, source)


def _arity(function: ast.FunctionDef) -> tuple[int, float]:
    """Fewest and most positional arguments, self included; a required keyword counts as one argument too many."""
    arguments = function.args
    positional = len(arguments.posonlyargs) + len(arguments.args)
    required = positional - len(arguments.defaults) + sum(default is None for default in arguments.kw_defaults)
    return required, float("inf") if arguments.vararg else positional


def _rejected(kind: FailureKind, message: str, node: ast.AST, source: str) -> Rejected:
    line = int(getattr(node, "lineno", 0))
    return Rejected(Failure(kind, message, line or None, line_of(source, line)))


def line_of(source: str, line: int | None) -> str:
    """A line of a source by its number, "" if there is none such."""
    lines = source.splitlines()
    return lines[line - 1] if line and 0 < line <= len(lines) else ""


def imported(source: str) -> tuple[str, ...]:
    """The compiled modules, NumPy's and SciPy's, that a source imports: they must be loaded before it is confined."""
    names: set[str] = set()
    for node in ast.walk(parse(source)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return tuple(sorted(name for name in names if name.split(".")[0] in ("numpy", "scipy")))
