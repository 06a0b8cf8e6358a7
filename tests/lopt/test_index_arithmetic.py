"""Beyond 2^31 elements: block arithmetic in Python's integers, offsets in the kernel in 64 bits."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from lopt.features import SMALL_FC, blocks, factored_axes
from lopt.step import cpu, plan
from metabench import kernel as kernels

HUGE = 2**31 + 1


@pytest.mark.parametrize("shape", [(HUGE,), (HUGE, 3), (3, HUGE), (70_000, 40_000)])
def test_blocks_tile_a_tensor_of_more_than_two_billion(shape):
    tiles = blocks(shape, 1 << 22)
    assert all(max(s.stop for s in block) > 0 for block in tiles)
    last = tiles[-1]
    assert [s.stop for s in last] == list(shape)
    total = sum(int(np.prod([s.stop - s.start for s in block], dtype=object)) for block in tiles)
    assert total == int(np.prod(shape, dtype=object))
    geometry = plan.Geometry.of(shape, factored_axes(shape))
    assert geometry.outer * geometry.x * geometry.mid * geometry.y * geometry.z == total


def test_the_kernel_reaches_tensors_beyond_two_billion(tmp_path):
    """The second tensor's momenta begin 2^31 + 1 floats after the first's: a 32-bit offset would read elsewhere, or crash."""
    kernel = kernels.find("lopt_small_fc_apply")
    module = kernel.reference()
    arguments = module.inputs(size=[(8, 16), (16, 8)], seed=0)
    right = module.expected(arguments)["out"]
    m, n = arguments["m"], 3 * 8 * 16
    try:
        far = np.memmap(tmp_path / "m.bin", np.float32, "w+", shape=(HUGE + n,))
    except OSError as e:
        pytest.skip(f"no room for a sparse file of 9 GB: {e}")
    far[:n], far[HUGE:] = m[:n], m[n:]
    arguments["m"] = far
    arguments["tensors"][1, plan.POINTERS.index("m")] = 4 * HUGE
    run = cpu._libraries[cpu.library(SMALL_FC, 32, ())].apply
    run(*(x.ctypes.data if getattr(x, "shape", ()) else x.item() for x in arguments.values()))
    np.testing.assert_allclose(arguments["out"], right, rtol=module.RTOL, atol=module.ATOL)


@pytest.mark.parametrize("shape", [(), (1,), (0,), (3, 0, 2), (5, 7), (50, 3, 3), (2, 3, 4, 5), (1, 1, 1)])
@pytest.mark.parametrize("limit", [1, 7, 64, 1000])
def test_blocks_cover_every_element_once(shape, limit):
    seen = torch.zeros(shape)
    for block in blocks(shape, limit):
        seen[block] += 1
        assert seen[block].numel() <= limit
    assert (seen == 1).all()


def test_blocks_of_a_region_stay_inside():
    seen = torch.zeros(4, 5, 6)
    for block in blocks((4, 5, 6), 7, (slice(1, 3), slice(0, 5), slice(2, 6))):
        seen[block] += 1
    want = torch.zeros(4, 5, 6)
    want[1:3, :, 2:6] = 1
    assert torch.equal(seen, want)


def test_ties_are_broken_by_layout_and_by_a_stable_sort():
    """Square weights: JAX by position, torch as flax orders them; numpy's sort is unstable on (64, 64, 3, 3)."""
    assert factored_axes((6, 6), "jax") == (0, 1) and factored_axes((6, 6), "torch") == (1, 0)
    assert factored_axes((64, 64, 3, 3), "jax") == (0, 1) and factored_axes((64, 64, 3, 3), "torch") == (1, 0)
    assert factored_axes((768, 768, 16, 16), "jax") == (0, 1)
    assert factored_axes((5, 7), "jax") == factored_axes((5, 7), "torch") == (0, 1)
    assert factored_axes((64, 32, 32), "jax") == (2, 0) and factored_axes((64, 32, 32), "torch") == (1, 0)
    assert factored_axes((9,), "torch") is None and factored_axes((), "jax") is None
