"""The static check names the kind of failure and the line, finds the optimizer behind its helpers, and never runs anything."""

from __future__ import annotations

import pytest

from evotune.contract import FailureKind, Rejected, check, imported

GOOD = "class Good:\n    def __call__(self, func, searchspace):\n        return None\n"


@pytest.mark.parametrize(
    ("source", "kind", "line"),
    [
        ("def f(:\n", FailureKind.SYNTAX, 1),
        ("x = '\0'\n" + GOOD, FailureKind.SYNTAX, None),
        ("import torch\n" + GOOD, FailureKind.IMPORT, 1),
        ("from kernel_tuner.interface import tune_kernel\n" + GOOD, FailureKind.IMPORT, 1),
        ("import math\nimport os\n" + GOOD, FailureKind.FORBIDDEN, 2),
        ("from subprocess import run\n" + GOOD, FailureKind.FORBIDDEN, 1),
        (GOOD + "x = open('/etc/passwd')\n", FailureKind.FORBIDDEN, 4),
        (GOOD + "\nx = eval('1')\n", FailureKind.FORBIDDEN, 5),
        (GOOD + "x = Good.__call__.__globals__\n", FailureKind.FORBIDDEN, 4),
        ("x = 1\n", FailureKind.INTERFACE, None),
        ("class Bad:\n    def run(self, func): ...\n", FailureKind.INTERFACE, None),
        ("class Bad:\n    def __call__(self, func): ...\n", FailureKind.INTERFACE, 2),
        ("class Bad:\n    def __call__(self, func, space, extra): ...\n", FailureKind.INTERFACE, 2),
        (
            "class Bad:\n    def __init__(self, budget): ...\n    def __call__(self, f, s): ...\n",
            FailureKind.INTERFACE,
            2,
        ),
        (
            "class Bad:\n    def __init__(self, *, budget): ...\n    def __call__(self, f, s): ...\n",
            FailureKind.INTERFACE,
            2,
        ),
    ],
)
def test_what_is_wrong_is_told_with_its_line(source: str, kind: FailureKind, line: int | None) -> None:
    with pytest.raises(Rejected) as rejected:
        check(source)
    failure = rejected.value.failure
    assert (failure.kind, failure.line) == (kind, line)
    assert line is None or failure.text.strip() in source.splitlines()[line - 1]


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("class Helper:\n    pass\n\n" + GOOD, "Good"),
        (
            "class Model:\n    def __call__(self, x, y): ...\nclass Mine(OptAlg):\n    def __call__(self, f, s): ...\n",
            "Mine",
        ),
        (
            "class Mine(OptAlg):\n    def __call__(self, f, s): ...\nclass Model:\n    def __call__(self, x, y): ...\n",
            "Mine",
        ),
        ("class Base(OptAlg):\n    def __call__(self, f, s): ...\nclass Last(Base):\n    pass\n", "Last"),
        (
            "try:\n    from kernel_tuner.strategies.wrapper import OptAlg\nexcept ImportError:\n    class OptAlg: ...\n"
            + GOOD,
            "Good",
        ),
        ("class Good:\n    def __call__(self, func, searchspace, *, verbose=False): ...\n", "Good"),
        ("class Good:\n    def __call__(self, *args): ...\n", "Good"),
        ("class Loop(Loop):\n    def __call__(self, f, s): ...\n", "Loop"),
    ],
)
def test_the_optimizer_is_found_behind_its_helpers(source: str, name: str) -> None:
    assert check(source) == name


def test_compiled_modules_are_known_before_the_program_is_confined() -> None:
    assert imported("import math\nimport numpy as np\nfrom scipy import stats\n") == ("numpy", "scipy", "scipy.stats")
