"""CELO2 with its published meta-weights on two small tasks, beside AdamW: a transformer on made text, a convnet on digits.

AdamW runs with its default learning rate and with the best of eight. The loss is what it is: mean over the last steps.

    python benchmarks/celo2_training.py [WEIGHTS] > benchmarks/celo2_training.json

WEIGHTS is anything that `lopt.models.pretrained` reads, by default the published ones on the Hub.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from lopt import CELO2

WEIGHTS = "hub:DiamondXL/celo2"
Batches = Iterator[tuple[Tensor, Tensor]]


class Transformer(nn.Module):
    """Two layers, width 64, on 32 characters."""

    def __init__(self, vocab: int = 32, d: int = 64, context: int = 32) -> None:
        super().__init__()
        self.token, self.place = nn.Embedding(vocab, d), nn.Parameter(torch.randn(context, d) * 0.02)
        layer = nn.TransformerEncoderLayer(d, 4, 4 * d, dropout=0.0, batch_first=True, norm_first=True)
        self.body = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(d, vocab)
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(context))

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.body(self.token(x) + self.place, mask=self.mask, is_causal=True)).transpose(1, 2)


def made_text(seed: int = 0, batch: int = 16, context: int = 32) -> Batches:
    """Text from a second-order Markov chain over 32 characters: something to learn, nothing to download."""
    g = torch.Generator().manual_seed(seed)
    table = torch.distributions.Dirichlet(torch.full((32,), 0.05))
    torch.manual_seed(seed)
    odds = table.sample((32, 32))
    while True:
        x = torch.randint(32, (batch, 2), generator=g)
        for _ in range(context - 1):
            following = torch.multinomial(odds[x[:, -2], x[:, -1]], 1, generator=g)
            x = torch.cat([x, following], 1)
        yield x[:, :-1], x[:, 1:]


def convnet() -> nn.Module:
    return nn.Sequential(nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(),
                         nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(128, 10))  # fmt: skip


def digits(seed: int = 0, batch: int = 64) -> Batches:
    from sklearn.datasets import load_digits

    data = load_digits()
    x, y = torch.tensor(data.images, dtype=torch.float32)[:, None] / 16, torch.tensor(data.target)
    g = torch.Generator().manual_seed(seed)
    while True:
        chosen = torch.randint(len(x), (batch,), generator=g)
        yield x[chosen], y[chosen]


TASKS: dict[str, tuple[Callable[[], nn.Module], Callable[[], Batches]]] = {
    "transformer": (Transformer, made_text),
    "convnet": (convnet, digits),
}


def train(task: str, make: Callable[[nn.Module], torch.optim.Optimizer], steps: int) -> list[float]:
    """Losses of one run: warm-up over a tenth, then a cosine, whatever the optimizer."""
    torch.manual_seed(0)
    model, batches = TASKS[task][0](), TASKS[task][1]()
    optimizer = make(model)
    shape = lambda t: min(1.0, (t + 1) / (steps / 10)) * 0.5 * (1 + math.cos(math.pi * t / steps))  # noqa: E731
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, shape)
    losses = []
    for _, (x, y) in zip(range(steps), batches, strict=False):
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
        losses.append(loss.item())
    return losses


def celo2(model: nn.Module, weights: str, lr: float = 1e-2) -> CELO2:
    """Embeddings and the output layer by AdamW, as the weights are meant to be used."""
    embeddings = [p for m in model.modules() if isinstance(m, nn.Embedding) for p in m.parameters()]
    others = [p for p in model.parameters() if all(p is not e for e in embeddings)]
    groups = [{"params": others}, {"params": embeddings, "is_embedding": True}] if embeddings else others
    return CELO2(groups, lr=lr, weights=weights)


def compare(weights: str, steps: int = 300) -> list[dict[str, float | str]]:
    rows: list[dict[str, float | str]] = []

    def record(task: str, name: str, lr: float, make: Callable[[nn.Module], torch.optim.Optimizer]) -> float:
        losses = train(task, make, steps)
        final = sum(losses[-20:]) / 20
        rows.append({"task": task, "optimizer": name, "lr": lr, "first": round(losses[0], 4), "final": round(final, 4)})
        return final

    for task in TASKS:
        for lr in (3e-3, 1e-2, 3e-2):
            record(task, "celo2", lr, lambda m, lr=lr: celo2(m, weights, lr))
        record(task, "adamw default", 1e-3, lambda m: torch.optim.AdamW(m.parameters(), lr=1e-3))
        for k in range(8):
            lr = 1e-4 * 10 ** (k * 2.5 / 7)
            record(task, "adamw", round(lr, 6), lambda m, lr=lr: torch.optim.AdamW(m.parameters(), lr=lr))
    return rows


if __name__ == "__main__":
    torch.set_num_threads(1)
    json.dump({"command": "python benchmarks/celo2_training.py celo2_weights.pt", "torch": torch.__version__, "steps": 300,
               "rows": compare(sys.argv[1] if len(sys.argv) > 1 else WEIGHTS)}, sys.stdout, indent=1)  # fmt: skip
