"""A space must hold exactly the configurations that its definition allows, however the restrictions are written."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metabench import Space, UserError, expression
from metabench.expression import NotVectorizable

SIZES = {
    "convolution_milo": (10_240, 4_362),
    "dedispersion_milo": (22_272, 11_130),
    "gemm_milo": (663_552, 116_928),
    "hotspot_milo": (4_440_000, 82_984),
}


@pytest.mark.parametrize("kernel", SIZES)
def test_the_published_definitions_have_their_known_sizes(shared_dir: Path, kernel: str) -> None:
    space = Space.from_t1(shared_dir / "spaces" / "kernels" / f"{kernel}.json")
    assert (space.cartesian_size, len(space)) == SIZES[kernel]


def test_hotspot_with_blocks_per_sm_is_the_papers_space(shared_dir: Path) -> None:
    definition = json.loads((shared_dir / "spaces" / "kernels" / "hotspot_milo.json").read_text())
    section = definition["ConfigurationSpace"]
    memory = section["Conditions"][-1]["Expression"].split(" <= ")[0]
    section["TuningParameters"].append({"Name": "blocks_per_sm", "Values": "[0, 1, 2, 3, 4]"})
    section["Conditions"].append({"Expression": f"blocks_per_sm == 0 or {memory} * blocks_per_sm <= 102400"})
    space = Space.from_t1(definition)
    assert (space.cartesian_size, len(space)) == (22_200_000, 349_853)


def test_texts_lambdas_and_callables_mean_the_same() -> None:
    params = {"x": [1, 2, 3, 4], "y": [0, 1, 2], "use": [True, False], "mode": ["row", "col"]}

    def named(p):
        return p["x"] % 2 == 0 or p["mode"] == "row"

    ways = [
        ["x % 2 == 0 or mode == 'row'", "not use or x * y <= 4"],
        [lambda p: p["x"] % 2 == 0 or p["mode"] == "row", lambda p: not p["use"] or p["x"] * p["y"] <= 4],
        [named, lambda use, x, y: not use or x * y <= 4],
        "(x % 2 == 0 or mode == 'row') and (not use or x * y <= 4)",
    ]
    sets = [Space.from_dict(params, way).configurations for way in ways]
    by_hand = [
        (x, y, use, mode)
        for x, y, use, mode in itertools.product(*params.values())
        if (x % 2 == 0 or mode == "row") and (not use or x * y <= 4)
    ]
    assert all(found == by_hand for found in sets)


def test_division_by_zero_behind_an_or_is_python_not_numpy() -> None:
    space = Space.from_dict({"x": [0, 2, 3], "n": [64]}, ["x == 0 or n % x == 0"])
    assert space.configurations == [(0, 64), (2, 64)]


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os').system('true')",
        "x.__class__",
        "(lambda: 1)()",
        "open('f')",
        "x[0]",
        "f'{x}'",
        "[y := 1]",
        "x @ x",
    ],
)
def test_restrictions_are_parsed_not_evaluated(text: str) -> None:
    with pytest.raises(UserError):
        Space.from_dict({"x": [1, 2]}, [text])


@pytest.mark.parametrize(
    ("params", "restrictions", "message"),
    [
        ({}, [], "at least one parameter"),
        ({"x": []}, [], "non-empty list"),
        ({"x": [1, 1]}, [], "a value twice"),
        ({"x": [1, 2]}, ["x > 2"], "no valid configuration"),
        ({"x": [1, 2]}, ["z > 2"], "unknown parameters z"),
        ({"x": [1, 2]}, ["x >"], "not a Python expression"),
        ({"x": [1, 2]}, [3], "text or a callable"),
        ({"x": [0, 1]}, ["1 // x"], "fails on"),
    ],
)
def test_what_is_wrong_is_said(params: dict, restrictions: list, message: str) -> None:
    with pytest.raises(UserError, match=message):
        Space.from_dict(params, restrictions)


def test_a_definition_that_is_no_t1_names_the_file(tmp_path: Path) -> None:
    broken = tmp_path / "broken.json"
    broken.write_text('{"ConfigurationSpace": {"TuningParameters": [{"Name": "x"}]}}')
    with pytest.raises(UserError, match=r"broken\.json is not T1: 'Values'"):
        Space.from_t1(broken)


NUMBERS = st.integers(-9, 9)
TERMS = st.recursive(
    st.sampled_from(["x", "y", "b"]) | NUMBERS.map(str),
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from(["+", "-", "*", "//", "%", "/"]), inner).map(
            lambda t: f"({t[0]} {t[1]} {t[2]})"
        ),
        st.tuples(inner, st.sampled_from(["<", "<=", "==", "!="]), inner).map(lambda t: f"({t[0]} {t[1]} {t[2]})"),
        st.tuples(inner, st.sampled_from(["and", "or"]), inner).map(lambda t: f"({t[0]} {t[1]} {t[2]})"),
        inner.map(lambda t: f"(not {t})"),
        inner.map(lambda t: f"(-{t})"),
    ),
    max_leaves=8,
)


@settings(max_examples=300, deadline=None)
@given(TERMS)
def test_all_at_once_equals_one_by_one(text: str) -> None:
    """The NumPy path agrees with Python on every row, or declines."""
    tree = expression.parse(text)
    rows = list(itertools.product([-2, 0, 3, 7], [1, 2, -5], [True, False]))
    columns = {name: np.array(column) for name, column in zip("xyb", zip(*rows, strict=True), strict=True)}
    try:
        fast = np.broadcast_to(np.asarray(expression.evaluate_columns(tree, columns)) != 0, len(rows))
    except NotVectorizable:
        return
    slow = expression.compile_row(tree)
    assert [bool(slow(dict(zip("xyb", row, strict=True)))) for row in rows] == fast.tolist()
