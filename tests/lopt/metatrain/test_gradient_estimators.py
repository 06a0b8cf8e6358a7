"""Every estimator of the meta-gradient is held against what it estimates."""

from __future__ import annotations

import pytest
import torch

from lopt.metatrain import batched, full
from lopt.metatrain.es import Pairs
from lopt.metatrain.inner import Instances
from lopt.metatrain.lane import Lane, Unroll, late_weight, meta_loss
from lopt.metatrain.layout import Layout
from lopt.metatrain.meta_weights import like_adam, unflatten
from lopt.metatrain.tasks.mlp import MLPTask

# A training that one can do by hand: s <- 0.9 s + a, loss (s - b)^2, six steps in three truncations of two.
TRUNCATIONS, STEPS = 3, 2
THETA = torch.tensor([0.5, 0.3])


def toy(theta: torch.Tensor, s: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """One truncation of particles with (n, 2) meta-weights: (sum of losses (n,), state after it)."""
    total = torch.zeros(len(s))
    for _ in range(STEPS):
        s = 0.9 * s + theta[:, 0]
        total = total + (s - theta[:, 1]) ** 2
    return total, s


def toy_objective(theta: torch.Tensor) -> torch.Tensor:
    s, total = torch.ones(1), torch.zeros(1)
    for _ in range(TRUNCATIONS):
        loss, s = toy(theta[None], s)
        total = total + loss
    return total[0]


def finite_differences() -> torch.Tensor:
    eye = 1e-3 * torch.eye(2, dtype=torch.float64)
    at = THETA.double()
    return torch.stack([(toy_objective(at + e) - toy_objective(at - e)) / 2e-3 for e in eye]).float()


def estimates(method: str, repeats: int = 40, pairs: int = 1000) -> torch.Tensor:
    """(repeats, 2): the sum of the estimates of a life's truncations."""
    out = []
    for seed in range(repeats):
        generator, own = torch.Generator().manual_seed(seed), Pairs(method, pairs, 2, 0.1)
        s, total = torch.ones(2 * pairs), torch.zeros(2)
        for _ in range(TRUNCATIONS):
            loss, s = toy(own.perturb(THETA, generator), s)
            total = total + own.gradient(loss)
        out.append(total)
    return torch.stack(out)


@pytest.mark.parametrize("method", ["pes", "nres"])
def test_persistent_and_noise_reuse_es_are_unbiased(method: str) -> None:
    # The loss is quadratic, so smoothing by the perturbations does not move its gradient.
    found, wanted = estimates(method), finite_differences()
    error = found.std(0) / len(found) ** 0.5
    assert (error < 0.025 * wanted.abs()).all(), "too loose to notice a bias"
    assert ((found.mean(0) - wanted).abs() < 4 * error).all()


def test_truncated_es_is_biased_and_exact_for_a_life_of_one_truncation() -> None:
    found, wanted = estimates("es"), finite_differences()
    error = found.std(0) / len(found) ** 0.5
    assert ((found.mean(0) - wanted).abs() > 20 * error).any(), "it does not see beyond its truncation"
    generator, own = torch.Generator().manual_seed(0), Pairs("es", 100_000, 2, 0.1)
    one = own.gradient(toy(own.perturb(THETA, generator), torch.ones(200_000))[0])
    at = THETA.clone().requires_grad_()
    (exact,) = torch.autograd.grad(toy(at[None], torch.ones(1))[0].sum(), at)
    assert torch.allclose(one, exact, rtol=0.03)


def test_antithetic_pairs_are_opposite_and_begin_anew_when_told() -> None:
    pairs, generator = Pairs("pes", 4, 3, 0.1), torch.Generator().manual_seed(0)
    theta = torch.zeros(3)
    plus, minus = pairs.perturb(theta, generator).chunk(2)
    assert torch.equal(plus, -minus)
    before = pairs.sum.clone()
    pairs.restart(torch.tensor([True, False, False, False]))
    pairs.perturb(theta, generator)
    assert torch.equal(pairs.sum[0], pairs.current[0])
    assert torch.equal(pairs.sum[1], before[1] + pairs.current[1])


TASK = MLPTask(inputs=6, width=4, depth=1, outputs=3, batch=8)


def by_hand(theta: torch.Tensor, lane: Lane, batches: list[tuple[torch.Tensor, ...]], begin: int) -> torch.Tensor:
    """The meta-loss of a short unroll from step `begin` of it, particle by particle, tensor by tensor, without vmap."""
    from lopt.features import factored_axes, init_accumulators
    from lopt.optim.small_fc import small_fc_step

    mlp, decays = full.weights_of(theta, (32, 32))
    layout, total = lane.layout, torch.zeros(())
    for i in range(lane.instances.n):
        p = [x[i].clone().requires_grad_() for x in layout.unpack(lane.instances.origin)]
        multiplier = [x[i] for x in layout.unpack(lane.instances.multiplier)]
        a = [init_accumulators(x.shape, factored_axes(x.shape, "torch"), x.device, x.dtype) for x in p]
        first = None
        for t, batch in enumerate(batches):
            loss = TASK.loss([m * x for m, x in zip(multiplier, p, strict=True)], *(b[i] for b in batch))
            first = loss.detach() if first is None else first
            if t >= begin:
                total = total + meta_loss(loss, first) * late_weight(torch.tensor(float(t)), lane.horizon, 0.5)
            grads = torch.autograd.grad(loss, p, create_graph=True)
            moved = [
                small_fc_step(
                    x,
                    g,
                    b,
                    torch.tensor(float(t)),
                    mlp,
                    decays,
                    factored_axes(x.shape, "torch"),
                    lr=(1 + t / 2.0) ** -0.5,
                    by_signal=True,
                )
                for x, g, b in zip(p, grads, a, strict=True)
            ]
            p, a = [m[0] for m in moved], [m[1] for m in moved]
    return total / ((len(batches) - begin) * lane.instances.n)


@pytest.mark.parametrize(("age", "begin"), [(0, 0), (4, 2)])
def test_the_full_gradient_of_a_short_unroll_equals_autograds(age: int, begin: int) -> None:
    # All losses of a life's first truncation count, and those in the second half of a later one.
    unroll = Unroll(
        method="full", truncation=4, shortest=4, longest=4, most_pairs=2, lr_decay_steps=2.0, by_signal=True
    )
    lane, theta = Lane(TASK, 4, unroll, seed=5), like_adam(0)
    lane.age = age
    generator = torch.Generator()
    generator.set_state(lane.generator.get_state())
    batches = [lane.instances.next_batch(generator) for _ in range(4)]
    at = theta.clone().requires_grad_()
    (wanted,) = torch.autograd.grad(by_hand(at, lane, batches, begin), at)
    found, _ = lane.advance(theta)
    assert wanted.norm() > 1e-4
    assert (found - wanted).norm() < 1e-3 * wanted.norm()


def test_es_on_an_unroll_points_along_the_full_gradient() -> None:
    # The same lane twice. 2,409 directions are too many to average out, so the check is in the subspace of 12 coordinates.
    theta = like_adam(0)
    exact, _ = Lane(TASK, 8, Unroll(method="full", truncation=8, shortest=8, longest=8, most_pairs=16), 5).advance(
        theta
    )
    largest = exact.abs().topk(12).indices
    lane = Lane(TASK, 8, Unroll(method="es", truncation=8, shortest=8, longest=8, most_pairs=16), 5)
    few = Pairs("es", 16, 12, 0.003)
    total = torch.zeros(12)
    for repeat in range(60):
        offsets = few.perturb(torch.zeros(12), torch.Generator().manual_seed(repeat))
        thetas = theta.repeat(32, 1)
        thetas[:, largest] += offsets
        total += few.gradient(unroll_losses(lane, thetas))
    cosine = torch.cosine_similarity(total, exact[largest], 0)
    assert cosine > 0.9


def unroll_losses(lane: Lane, thetas: torch.Tensor) -> torch.Tensor:
    """(32,) mean weighted meta-loss of a fresh lane's first truncation with these meta-weights."""
    n, layout = lane.instances.n, lane.layout
    rows, state = lane.instances.origin.repeat(2, 1), batched.initial_state(layout, 2 * n)
    meta, scratch = batched.meta_batch(thetas), batched.Scratch(2 * n, layout, (32, 32))
    generator = torch.Generator()
    generator.set_state(lane.generator.get_state())
    total, first = torch.zeros(2 * n), None
    for t in range(8):
        losses, g = lane.instances.losses_and_gradients(rows, lane.instances.next_batch(generator))
        first = losses[:n].repeat(2) if first is None else first
        total += meta_loss(losses, first) * late_weight(torch.tensor(float(t)), 8, 0.5)
        batched.step_(rows, g, state, meta, layout, scratch)
    return total / 8


def test_pairs_see_the_same_random_numbers() -> None:
    # With no perturbation to speak of, both particles of a pair do the same for many steps.
    lane = Lane(TASK, 100, Unroll(method="pes", sigma=1e-12, truncation=20, shortest=100, longest=100), 1)
    lane.advance(like_adam(0))
    n = lane.instances.n
    assert torch.allclose(lane.rows[:n], lane.rows[n:], atol=1e-6)
    assert not torch.allclose(lane.rows[0], lane.rows[1], atol=1e-2)


def test_a_blown_up_pair_begins_anew_and_counts_as_bad() -> None:
    lane = Lane(TASK, 1000, Unroll(method="pes", truncation=10, shortest=1000, longest=1000), 1)
    lane.advance(like_adam(0))
    lane.rows[0] = 1e6 * torch.randn(
        lane.layout.size, generator=torch.Generator().manual_seed(0)
    )  # one of pair 0 is lost
    _, loss = lane.advance(like_adam(0))
    n = lane.instances.n
    assert torch.isfinite(torch.tensor(loss))
    assert torch.equal(lane.rows[0], lane.instances.origin[0])
    assert torch.equal(lane.rows[n], lane.instances.origin[0])
    assert lane.state.t[0] == lane.state.t[n] == 0
    assert (lane.state.t[1:n] == 20).all()


def test_losses_of_all_copies_of_an_instance_are_on_its_own_data() -> None:
    instances = Instances(MLPTask(tensor_spread=0.5, scale=2.0), 3, torch.Generator().manual_seed(0))
    batch = instances.next_batch(torch.Generator().manual_seed(1))
    losses = instances.losses(instances.origin.repeat(2, 1), batch)
    assert torch.allclose(losses[:3], losses[3:])
    tensors = [x[1] for x in Layout(instances.task.shapes).unpack(instances.origin * instances.multiplier)]
    assert torch.allclose(losses[1], instances.task.loss(tensors, *(x[1] for x in batch)), atol=1e-6)


def test_what_is_not_perturbed_has_no_gradient_and_the_rest_is_as_it_was() -> None:
    last = Pairs("es", 5, 12, 0.1, free=4)
    meta = last.perturb(torch.zeros(12), torch.Generator().manual_seed(0))
    assert not meta[:, :8].any() and meta[:, 8:].all()
    estimate = last.gradient(meta.sum(1))
    assert not estimate[:8].any() and estimate[8:].all()
    unroll = Unroll(method="nres", perturb="outputs")
    theta = torch.arange(float(Unroll().free))
    net = unflatten(theta)  # the last numbers are the last layer's and the decays'
    ours = [net.mlp.weights[-1], net.mlp.biases[-1], net.momentum_offsets, net.rms_offsets, net.adafactor_offsets]
    assert torch.equal(torch.cat([x.reshape(-1) for x in ours]), theta[-unroll.free :])
