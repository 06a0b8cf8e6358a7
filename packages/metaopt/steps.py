"""The learned optimizer's step by different backends: do they agree, what do they cost, and does a network train with it?

Meta-weights are the packaged ones; for timing seeded random numbers do as well.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from lopt import SmallFCLOpt
from metabench.timing import Timing, interleaved

WEIGHTS = "random:0"


@dataclass(frozen=True)
class Agreement:
    """Two runs of the same training, one by each backend.

    Attributes:
        losses: of the reference, before each step.
        difference: largest difference of any parameter after the last step.
        movement: largest movement of any parameter from its start, by the reference.
    """

    steps: int
    losses: list[float]
    difference: float
    movement: float

    @property
    def relative_difference(self) -> float:
        """The difference in units of the movement."""
        return self.difference / self.movement

    def __str__(self) -> str:
        return (
            f"{self.steps} steps of a 64-128-10 network with the packaged meta-weights: "
            f"loss {self.losses[0]:.3f} to {self.losses[-1]:.3f}\n"
            f"largest difference between tuned kernel and reference: {self.difference:.1e}, "
            f"{self.relative_difference:.1e} of the largest movement {self.movement:.2e}"
        )


def compare_backends(steps: int = 20, seed: int = 0) -> Agreement:
    """Train a small network twice, with the C++ kernel as tuned and with the reference.

    Raises:
        RuntimeError: they disagree by more than float32 rounding explains (1e-4 of the movement).
    """
    start, reference, losses = _train("reference", steps, seed)
    _, tuned, _ = _train("auto", steps, seed)
    difference = max((a - b).abs().max().item() for a, b in zip(reference, tuned, strict=True))
    movement = max((a - b).abs().max().item() for a, b in zip(start, reference, strict=True))
    agreement = Agreement(steps, losses, difference, movement)
    if not agreement.relative_difference < 1e-4:
        raise RuntimeError(f"backends disagree: {agreement}")
    return agreement


def _train(backend: str, steps: int, seed: int) -> tuple[list[torch.Tensor], list[torch.Tensor], list[float]]:
    generator = torch.Generator().manual_seed(seed)
    shapes = [(128, 64), (128,), (10, 128), (10,)]
    params = [(torch.randn(s, generator=generator) * 0.1).requires_grad_() for s in shapes]
    start = [p.detach().clone() for p in params]
    teacher = torch.randn(64, 10, generator=generator)
    optimizer = SmallFCLOpt(params, backend=backend)
    losses = []
    for _ in range(steps):
        # New examples each step: once a fixed set is learned by heart, gradients are nothing but rounding, which the optimizer,
        # whose features are normalised, magnifies a thousandfold within five steps.
        x = torch.randn(256, 64, generator=generator)
        y = (x @ teacher).argmax(1)
        optimizer.zero_grad()
        hidden = torch.tanh(torch.nn.functional.linear(x, params[0], params[1]))  # smooth: no unit switches by rounding
        loss = torch.nn.functional.cross_entropy(torch.nn.functional.linear(hidden, params[2], params[3]), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return start, [p.detach() for p in params], losses


def time_backends(configuration: Mapping[str, Any], rounds: int = 9) -> Timing:
    """CPU time of a whole step of one 768 x 512 tensor, on one thread: plain PyTorch, the kernel by default and as tuned."""
    steps: dict[str, Callable[[], object]] = {
        "plain PyTorch": _stepper("reference", None),
        "kernel, default": _stepper("cpu", {}),
        "kernel, tuned": _stepper("cpu", dict(configuration)),
    }
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return interleaved(steps, rounds, clock=time.process_time)  # CPU time: neighbours on the machine do not count
    finally:
        torch.set_num_threads(threads)


def _stepper(backend: str, configuration: dict[str, Any] | None) -> Callable[[], object]:
    generator = torch.Generator().manual_seed(0)
    p = torch.randn(768, 512, generator=generator).requires_grad_()
    p.grad = torch.randn(768, 512, generator=generator) * 1e-3
    return SmallFCLOpt([p], weights=WEIGHTS, backend=backend, config=configuration).step


def describe_times(timing: Timing) -> str:
    """Ratios of the whole step's time to the plain PyTorch step of the same rounds."""
    lines = [
        f"whole step of a 768 x 512 tensor, CPU time on one thread, {timing.seconds.shape[1]} rounds in turns: "
        f"plain PyTorch {1e3 * timing.median('plain PyTorch'):.1f} ms"
    ]
    for name in timing.names[1:]:
        ratio, low, high = timing.ratio("plain PyTorch", to=name)
        lines.append(f"  plain PyTorch / {name}: {ratio:.2f} (quartiles {low:.2f} to {high:.2f})")
    return "\n".join(lines)
