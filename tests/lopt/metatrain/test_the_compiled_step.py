"""The step of particles in C++ is the one in plain PyTorch: every layout and kind of rate, tiny gradients, other widths."""

from __future__ import annotations

import pytest
import torch

from lopt.metatrain import batched, compiled
from lopt.metatrain.layout import Layout
from lopt.metatrain.tasks import ConvTask, MLPTask, TransformerTask

HIDDEN, N, STEPS = (32, 32), 5, 20
LAYOUTS = {
    "every rank": Layout(((5, 7), (5,), (4, 4), (), (1, 1), (3,), (2, 3, 3, 3), (1,), (90, 70), (3, 600), (700, 2), (4, 6, 5))),
    "mlp": Layout(MLPTask(width=18, depth=2).shapes),
    "conv": Layout(ConvTask().shapes),
    "transformer": Layout(TransformerTask().shapes),
    "tied": Layout(TransformerTask(width=8, tied=True).shapes),
    "matrices": Layout(((9, 4), (70, 3))),
    "vectors": Layout(((9,), (70,))),
}  # fmt: skip


def generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def metas(hidden: tuple[int, ...] = HIDDEN, n: int = N) -> batched.MetaBatch:
    """Meta-weights of its own for every particle."""
    return batched.meta_batch(0.1 * torch.randn(n, batched.parameters_of(hidden), generator=generator(2)), hidden)


def trained(
    layout: Layout,
    backend: str,
    rates: list,
    gradients: list,
    hidden: tuple[int, ...] = HIDDEN,
    by_signal: bool = False,
):
    """(start, rows, state) after a step for each gradient; particles 1 and 3 begin anew in the middle."""
    start = torch.randn(N, layout.size, generator=generator(3))
    rows, state, meta = start.clone(), batched.initial_state(layout, N), metas(hidden)
    scratch = batched.Scratch(N, layout, hidden, backend)
    for t, g in enumerate(gradients):
        batched.step_(rows, g, state, meta, layout, scratch, rates[t % len(rates)], by_signal)
        if t == len(gradients) // 2:
            state.reset_(torch.tensor([False, True, False, True, False]))
    return start, rows, state


def assert_same(
    layout: Layout, rates: list, gradients: list, hidden: tuple[int, ...] = HIDDEN, by_signal: bool = False
) -> None:
    start, rows, state = trained(layout, "cpu", rates, gradients, hidden, by_signal)
    _, expected, other = trained(layout, "reference", rates, gradients, hidden, by_signal)
    moved = (expected - start).norm()
    assert moved > 1e-3 * start.norm()
    assert (rows - expected).abs().max() < 1e-6 * expected.abs().max()
    assert (rows - expected).norm() < 5e-6 * moved
    for x, y in zip(state.tensors(), other.tensors(), strict=True):
        assert torch.allclose(x, y, rtol=1e-5, atol=1e-37)


@pytest.mark.parametrize("name", LAYOUTS)
@pytest.mark.parametrize("rate", ["number", "per element", "per particle and element", "one for all"])
def test_is_the_reference_over_many_steps(name: str, rate: str) -> None:
    layout = LAYOUTS[name]
    sizes = {"per element": (layout.size,), "per particle and element": (N, layout.size), "one for all": ()}
    rates = [1.0, 0.3] if rate == "number" else [torch.rand(sizes[rate], generator=generator(4)) for _ in range(2)]
    # Of one sign: a momentum that has almost cancelled differs in its last bits, relatively to itself.
    gradients = [torch.rand(N, layout.size, generator=generator(t)) * 10.0 ** (-t / 4) for t in range(STEPS)]
    assert_same(layout, rates, gradients)


@pytest.mark.parametrize("name", LAYOUTS)
def test_steps_by_signal_are_the_references(name: str) -> None:
    layout = LAYOUTS[name]
    gradients = [torch.rand(N, layout.size, generator=generator(t)) * 10.0 ** (-t / 4) for t in range(STEPS)]
    gradients[3][:, layout.pieces[0].where] = 0
    for rates in ([1.0, 0.3], [torch.rand(layout.size, generator=generator(4))]):
        assert_same(layout, rates, gradients, by_signal=True)
    plain, own = (trained(layout, "cpu", [1.0], gradients, by_signal=x)[1] for x in (False, True))
    assert not torch.equal(plain, own)


@pytest.mark.parametrize("scale", [0.0, 1e-42, 1e-38, 1e-25, 1e-12, 1e6])
def test_gradients_of_any_size(scale: float) -> None:
    # Subnormal numbers are kept, not flushed to zero; a tensor without gradient is stepped too.
    layout = LAYOUTS["mlp"]
    gradients = [torch.rand(N, layout.size, generator=generator(t)) * scale for t in range(STEPS)]
    for g in gradients:
        g[:, layout.pieces[0].where] = 0
    assert_same(layout, [1.0], gradients)


@pytest.mark.parametrize("hidden", [(4, 4), (12, 12), (16, 16), (64, 64)])
def test_other_widths(hidden: tuple[int, ...]) -> None:
    layout = LAYOUTS["conv"]
    assert_same(layout, [1.0], [torch.rand(N, layout.size, generator=generator(t)) for t in range(4)], hidden)


@pytest.mark.parametrize("hidden", [(32,), (32, 16), (30, 30), (32, 32, 32), (256, 256)])
def test_widths_that_are_not_served_take_the_reference(hidden: tuple[int, ...]) -> None:
    layout = LAYOUTS["conv"]
    gradients = [torch.rand(N, layout.size, generator=generator(t)) for t in range(3)]
    own, expected = (trained(layout, backend, [1.0], gradients, hidden)[1] for backend in ("auto", "reference"))
    assert torch.equal(own, expected)
    with pytest.raises(ValueError, match="two equal hidden layers"):
        batched.Scratch(N, layout, hidden, "cpu")


def test_an_unknown_backend_is_refused() -> None:
    with pytest.raises(ValueError, match="unknown backend 'gpu' of the batched step; allowed: auto, reference, cpu"):
        batched.Scratch(N, LAYOUTS["mlp"], HIDDEN, "gpu")


def test_threads_do_not_change_a_bit() -> None:
    layout, before = LAYOUTS["transformer"], torch.get_num_threads()
    gradients = [torch.rand(N, layout.size, generator=generator(t)) for t in range(3)]
    found = []
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            found.append(trained(layout, "cpu", [1.0], gradients)[1])
    finally:
        torch.set_num_threads(before)
    assert torch.equal(found[0], found[1]) and torch.equal(found[0], found[2])


def test_a_particle_that_blew_up_touches_no_other() -> None:
    layout = LAYOUTS["mlp"]
    gradients = [torch.rand(N, layout.size, generator=generator(t)) for t in range(3)]
    _, fine, _ = trained(layout, "cpu", [1.0], gradients)
    gradients[0][2, 7], gradients[0][4] = torch.nan, torch.inf
    for backend in ("cpu", "reference"):
        _, rows, _ = trained(layout, backend, [1.0], gradients)
        assert rows[2].isnan().any() and rows[4].isnan().any()
    assert torch.equal(trained(layout, "cpu", [1.0], gradients)[1][[0, 1, 3]], fine[[0, 1, 3]])


def test_rows_that_lie_otherwise_are_stepped_too() -> None:
    layout, meta = LAYOUTS["conv"], metas()
    scratch, g = batched.Scratch(N, layout, HIDDEN), torch.rand(N, layout.size, generator=generator(1))
    plain = torch.randn(N, layout.size, generator=generator(3))
    across, read = plain.T.contiguous().T, plain.clone()
    batched.step_(across, g, batched.initial_state(layout, N), meta, layout, scratch)
    batched.step_(read, g.T.contiguous().T, batched.initial_state(layout, N), meta, layout, scratch)
    batched.step_(plain, g, batched.initial_state(layout, N), meta, layout, scratch)
    assert torch.equal(read, plain)
    assert (across - plain).abs().max() < 1e-6 * plain.abs().max()


def test_another_number_of_particles_is_an_error_and_no_crash() -> None:
    layout, scratch = LAYOUTS["conv"], batched.Scratch(N, LAYOUTS["conv"], HIDDEN)
    rows = torch.zeros(N, layout.size)
    with pytest.raises(RuntimeError):
        batched.step_(rows, rows.clone(), batched.initial_state(layout, N), metas(n=N + 1), layout, scratch)


def test_without_a_compiler_it_warns_once_and_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    compiled.library.cache_clear()
    layout = LAYOUTS["mlp"]
    gradients = [torch.rand(N, layout.size, generator=generator(1))]
    try:
        with pytest.warns(RuntimeWarning, match="lopt meta-trains in plain PyTorch.*no-such-compiler") as caught:
            own = [trained(layout, "auto", [1.0], gradients)[1] for _ in range(2)]
        assert len(caught) == 1
        assert torch.equal(own[0], trained(layout, "reference", [1.0], gradients)[1])
    finally:
        compiled.library.cache_clear()
