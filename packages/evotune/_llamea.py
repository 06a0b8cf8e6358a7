"""LLaMEA, imported without what its import does to others: it calls `logging.basicConfig`, which takes over the root logger."""

from __future__ import annotations

import contextlib
import logging
import warnings
from collections.abc import Iterator

from metabench.errors import UserError


@contextlib.contextmanager
def _logging_untouched() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for handler in [h for h in root.handlers if h not in handlers]:
            root.removeHandler(handler)
        root.setLevel(level)


try:
    with _logging_untouched():
        from llamea import LLaMEA as LLaMEA
        from llamea.llm import LLM as LLM
        from llamea.operator import Operator as Operator
        from llamea.solution import Solution as Solution
except ImportError as error:
    raise UserError(
        f"evolution needs LLaMEA ({error}); install it with: pip install 'metaopt-toolkit[tune]'"
    ) from error
