"""The plan: every element in one tile, partial sums that never share a place, scratch that does not grow with the model."""

from __future__ import annotations

import math
import re

import pytest
import torch

from lopt.features import factored_axes
from lopt.step import plan
from metabench import kernel as kernels

SHAPES = [(), (1,), (7,), (70_001,), (1, 1), (13, 17), (64, 64), (300, 700), (700, 300), (3, 90_000), (90_000, 3),
          (2, 3, 5, 7, 3), (128, 96, 3, 3), (40, 6, 50), (6, 300, 9, 400)]  # fmt: skip


def form(shape, dtype=torch.float32, layout="torch"):
    x = torch.empty(shape, dtype=dtype, device="meta")
    return plan.Form.of(x, x, x, factored_axes(shape, layout))


def rows(table, names):
    return [dict(zip(names, row, strict=True)) for row in table.tolist()]


def elements(t, tile):
    """Flat indices of a tile's elements, from the page's formulas."""
    o_b = torch.arange(tile["batch_from"], tile["batch_to"])[:, None, None]
    x, j = torch.arange(tile["x_from"], tile["x_to"])[:, None], torch.arange(tile["j_from"], tile["j_to"])
    return ((o_b // t["mid"] * t["x"] + x) * t["mid"] + o_b % t["mid"]) * t["y"] * t["z"] + j


def test_the_header_has_the_same_names_in_the_same_order():
    text = (kernels.root() / "lopt_step" / "plan.h").read_text()
    enums = dict(re.findall(r"enum (\w+) \{(.*?)\}", text, re.S))
    named = re.findall(r"\b[A-Z][A-Z_0-9]*\b", re.sub(r"//.*", "", enums["Field"]))
    singles = [name.upper() for name in (*plan.POINTERS, *plan.GEOMETRY, *plan.PLACES)]
    assert named[: len(singles)] == singles
    assert [n for n in named[len(singles) :] if n.endswith("0")][:1] == ["SIZE0"]
    assert f"DIMS = {plan.DIMS};" in text and len(plan.FIELDS) == len(singles) + 4 * plan.DIMS
    assert re.findall(r"\w+", enums["TileField"])[:-1] == [n.upper() for n in plan.TILE_FIELDS]


@pytest.mark.parametrize("area", [64, 4096, plan.AREA])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_every_element_is_in_one_tile(shape, area):
    made = plan.plan([form(shape)], area)
    (t,) = rows(made.tensors, plan.FIELDS)
    seen = torch.zeros(math.prod(shape), dtype=torch.int64)
    for tile in rows(made.tiles, plan.TILE_FIELDS):
        seen.index_add_(
            0, elements(t, tile).reshape(-1), torch.ones(1, dtype=torch.int64).expand(elements(t, tile).numel())
        )
    assert (seen == 1).all()


@pytest.mark.parametrize("layout", ["torch", "jax"])
@pytest.mark.parametrize("shape", [s for s in SHAPES if len(s) > 1], ids=str)
def test_partial_sums_have_places_of_their_own(shape, layout):
    """Each (piece, entry of the moment) is written by one tile; a tile without a place holds whole rows (columns)."""
    made = plan.plan([form(shape, layout=layout), form((300, 700))], 4096)
    first = rows(made.tensors, plan.FIELDS)
    seen = torch.zeros(made.partials, dtype=torch.int64)
    for tile in rows(made.tiles, plan.TILE_FIELDS):
        t = first[tile["tensor"]]
        e = elements(t, tile)
        run, z = t["y"] * t["z"], t["z"]
        slow = (e // run * z + e % z).unique()
        fast = ((e // run // (t["x"] * t["mid"]) * t["mid"] + e // run % t["mid"]) * run + e % run).unique()
        if t["slow_partial"] >= 0:
            seen[t["slow_partial"] + tile["j_piece"] * t["outer"] * t["x"] * t["mid"] * z + slow] += 1
        else:
            assert (tile["j_from"], tile["j_to"]) == (0, run)
        if t["fast_partial"] >= 0:
            seen[t["fast_partial"] + tile["x_piece"] * t["outer"] * t["mid"] * run + fast] += 1
        else:
            assert (tile["x_from"], tile["x_to"]) == (0, t["x"])
    assert (seen == 1).all()


@pytest.mark.parametrize(
    "shapes",
    [[(50257, 1600), *[(6400, 1600)] * 100], [(3, 10**8)], [(10**8, 3)], [(2**31 + 1, 5)], [(512, 512, 7, 7, 7)],
     [(3,)] * 10_000, [(1 << 17, 1 << 17)]],
)  # fmt: skip
def test_scratch_stays_below_64_megabytes(shapes):
    made = plan.plan([form(s) for s in shapes])
    scratch = 4 * made.partials + made.tiles.numel() * 8 + len(made.tiles) * 39 * 8
    assert scratch + made.tensors.numel() * 8 + len(shapes) * 30 * 4 < 64e6
    sizes = [r["numel"] for r in rows(made.tensors, plan.FIELDS)]
    assert sizes == [math.prod(s) for s in shapes]


def test_strides_merge_to_as_few_axes_as_describe_them():
    x = torch.empty(4, 5, 6, 7, device="meta")
    assert plan.merged(plan.Form.of(x, x, x, None)) == [(840, 1, 1, 1)]
    last = x.to(memory_format=torch.channels_last)
    assert plan.merged(plan.Form.of(last, x, last, None)) == [(4, 210, 210, 210), (5, 1, 42, 1), (42, 5, 1, 5)]


@pytest.mark.parametrize(
    ("x", "word"),
    [(torch.empty(2, 0), "hold something"), (torch.empty(2, dtype=torch.float64), "float64"),
     (torch.empty((2,) * 8).permute(7, 6, 5, 4, 3, 2, 1, 0), "at most 6 strides")],
)  # fmt: skip
def test_what_fits_no_plan_is_named(x, word):
    f = plan.Form.of(x, x, x, None)
    assert not f.served()
    with pytest.raises(ValueError, match=word):
        plan.plan([f])
