"""The CUDA kernels against plain PyTorch, run on the CPU thread by thread: indices, sums, both networks, every tunable.

Tolerance: 5e-6 of how far the tensor moved, and the last place of the largest parameter, which is how p is stored.
"""

from __future__ import annotations

import pytest
import torch
from cuda_on_cpu import DECAYS, by_cuda, by_reference, library, members, networks, tensors_of

from lopt.features import SMALL_FC, VELO, Decays
from lopt.step import cuda

SHAPES = [(), (1,), (1, 1), (7,), (1021,), (13, 17), (257, 3), (3, 257), (24, 24), (2, 3, 5, 7, 3), (5, 5, 3, 3),
          (6, 10, 3, 3), (4, 20, 12), (20, 4, 12), (2, 11, 3, 13, 2), (2, 300), (1, 500), (500, 1), (70, 90)]  # fmt: skip
KINDS = [(SMALL_FC, {"PRECISION": 0}), (SMALL_FC, {"PRECISION": 1}), (VELO, {})]
NAMES = ["small_fc, float32", "small_fc, split TF32", "velo"]
# Every tunable away from its default at least once, in company that interacts: lengths of pieces, panels, warps.
CONFIGS = [
    (SMALL_FC, {"PRECISION": 0, "ELEMENTS": 1, "HIDDEN_TILE": 4, "PANEL": 64, "THREADS": 96}),
    (SMALL_FC, {"PRECISION": 0, "ELEMENTS": 2, "HIDDEN_TILE": 16, "MEASURE_PIECE": 1, "GRID": 1}),
    (SMALL_FC, {"PRECISION": 1, "ELEMENTS": 2, "WEIGHTS_IN_REGISTERS": 1, "PANEL": 64, "MEASURE_PIECE": 2}),
    (VELO, {"ELEMENTS": 2, "PANEL": 256, "THREADS": 128, "RESIDENT": 2}),
]


@pytest.fixture(autouse=True)
def area(request, monkeypatch):
    """Elements of a tile: small ones make row and column sums of many pieces."""
    cuda._resident.cache_clear()
    monkeypatch.setattr(cuda, "AREA", getattr(request, "param", 1024))


several_areas = pytest.mark.parametrize("area", [64, cuda.AREA], ids=["many tiles", "few tiles"], indirect=True)


def contiguous():
    return [torch.randn(s) for s in SHAPES]


def compare(features, macros, make=contiguous, tolerance=5e-6, steps=2, **changes):
    """Two steps from the same start; largest difference by how far the reference moved, tensor by tensor."""
    want, have, handle = members(make, **changes), members(make, **changes), library(features, **macros)
    start = [x.param.clone() for x in want]
    for _ in range(steps):
        seen = by_reference(features, want)
        measured = by_cuda(features, have, handle)
    for x, y, before in zip(want, have, start, strict=True):
        moved = (x.param - before).abs().max().item()
        allowed = tolerance * moved + torch.finfo(torch.float32).eps * x.param.abs().max()
        assert moved > 0 and (x.param - y.param).abs().max() <= allowed, tuple(before.shape)
        for s, t in zip(tensors_of(x.accumulators), tensors_of(y.accumulators), strict=True):
            torch.testing.assert_close(t, s, rtol=2e-6, atol=0)
    return seen, measured


@several_areas
@pytest.mark.parametrize(("features", "macros"), KINDS, ids=NAMES)
def test_hostile_shapes(features, macros):
    seen, measured = compare(features, macros)
    if features is VELO:
        torch.testing.assert_close(measured, seen, rtol=1e-5, atol=1e-12)


@pytest.mark.parametrize(("features", "macros"), CONFIGS, ids=[str(macros) for _, macros in CONFIGS])
def test_configurations_differ_in_speed_only(features, macros):
    compare(features, macros, lambda: [torch.randn(s) for s in SHAPES[4:12]], steps=1)


@pytest.mark.parametrize(("features", "macros"), KINDS, ids=NAMES)
def test_odd_strides(features, macros):
    def views():
        base = torch.randn(40, 60)
        return [base[::2, 1::3], torch.randn(30, 20).T, torch.randn(4, 4, 5, 6).to(memory_format=torch.channels_last),
                torch.randn(99)[::3]]  # fmt: skip

    compare(features, macros, views)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize(("features", "macros"), KINDS[1:], ids=NAMES[1:])
def test_half_types(features, macros, dtype):
    """Both round the same float32 value, except where it falls beside the middle of two half numbers."""
    want, have = (members(lambda: [torch.randn(33, 20, dtype=dtype)], step_scale=1.0) for _ in range(2))
    before = want[0].param.clone()
    by_reference(features, want)
    by_cuda(features, have, library(features, **macros))
    x, y = want[0].param.float(), have[0].param.float()
    assert (x != before.float()).any()
    assert (x - y).abs().max() <= torch.finfo(dtype).eps * x.abs().max()
    assert (x != y).float().mean() < 0.01


@pytest.mark.parametrize("after", [False, True])
def test_decay_scale_and_bound(after):
    compare(SMALL_FC, {"PRECISION": 0}, lambda: [torch.randn(13, 17), torch.randn(40)], shrink=0.9, shrink_after=after,
            scale=torch.tensor(-3.0), bound=0.5)  # fmt: skip


def test_nan_becomes_nothing_where_asked():
    g = torch.randn(6, 5)
    g[2, 3], g[4, 1] = torch.nan, torch.inf
    x, y = (members(lambda: [torch.ones(6, 5)], [g], replace_nan=True, bound=2.0) for _ in range(2))
    by_reference(SMALL_FC, x)
    by_cuda(SMALL_FC, y, library(SMALL_FC, PRECISION=0))
    assert torch.isfinite(y[0].param).all()
    torch.testing.assert_close(y[0].param, x[0].param, rtol=0, atol=2e-7)


@pytest.mark.parametrize(("features", "macros"), KINDS, ids=NAMES)
def test_a_nan_is_passed_on(features, macros):
    """No maximum, comparison or rounding on the way may swallow it: all that the reference makes NaN is NaN."""
    g = torch.randn(6, 5)
    g[2, 3] = torch.nan
    x, y = (members(lambda: [torch.ones(6, 5)], [g]) for _ in range(2))
    by_reference(features, x)
    by_cuda(features, y, library(features, **macros))
    assert torch.isnan(x[0].param).any()
    assert torch.equal(torch.isnan(x[0].param), torch.isnan(y[0].param))


@pytest.mark.parametrize(("features", "macros"), KINDS, ids=NAMES)
def test_a_skipped_step_changes_nothing(features, macros):
    held = Decays(*(torch.ones_like(b) for b in DECAYS))
    handle = library(features, **macros)
    batch = members(contiguous)
    by_cuda(features, batch, handle)
    skipped = [
        x._replace(grad=type(x.grad)(x.grad.tensor * torch.nan, torch.float32, ok=torch.tensor(False))) for x in batch
    ]
    before = [x.clone() for y in batch for x in (y.param, *tensors_of(y.accumulators))]
    by_cuda(features, skipped, handle, held)
    after = [x for y in batch for x in (y.param, *tensors_of(y.accumulators))]
    assert all(torch.equal(x, y) for x, y in zip(before, after, strict=True))


@pytest.mark.parametrize(("features", "macros"), KINDS, ids=NAMES)
def test_the_same_to_the_bit_for_any_number_of_blocks(features, macros, monkeypatch):
    results = []
    for processors in (1, 1, 5):
        monkeypatch.setattr(cuda, "_processors", lambda device, n=processors: n)
        batch = members(lambda: [torch.randn(s) for s in ((7,), (70, 90), (6, 10, 3, 3), ())])
        by_cuda(features, batch, library(features, GRID=1, **macros))
        results.append([x for y in batch for x in (y.param, *tensors_of(y.accumulators))])
    for other in results[1:]:
        assert all(torch.equal(x, y) for x, y in zip(results[0], other, strict=True))


def test_tf32_alone_is_seen():
    """The emulated tensor cores do round to ten bits: without the second part, the error is that of TF32."""
    want, have = members(contiguous), members(contiguous)
    before = want[-1].param.clone()
    by_reference(SMALL_FC, want)
    by_cuda(SMALL_FC, have, library(SMALL_FC, PRECISION=2))
    error = (want[-1].param - have[-1].param).abs().max() / (want[-1].param - before).abs().max()
    assert 1e-5 < error < 2e-2


def test_strides_beyond_two_billion(tmp_path):
    """Rows of p lie 2^31 + 5 numbers apart in a sparse file: a 32-bit offset would read and write elsewhere."""
    far = 2**31 + 5
    try:
        base = torch.from_file(str(tmp_path / "p.bin"), shared=True, size=far + 8, dtype=torch.float32)
    except RuntimeError as e:
        pytest.skip(f"no room for a sparse file of 9 GB: {e}")
    p = base.as_strided((2, 8), (far, 1))
    p.copy_(torch.randn(2, 8, generator=torch.Generator().manual_seed(0)))
    dense = p.clone()
    g = [torch.randn(2, 8)]
    for x in (p, dense):
        by_cuda(SMALL_FC, members(lambda x=x: [x], g), library(SMALL_FC, PRECISION=0))
    assert torch.equal(p, dense)


def test_networks_have_biases():
    """What the tests above compare with would not notice a forgotten bias otherwise."""
    assert all(b.abs().min() > 0 for x in networks(VELO, 2) for b in x.biases)
