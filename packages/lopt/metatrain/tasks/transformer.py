"""Micro-transformers: embedding, LayerNorm, causal attention, feed-forward layer, next character of generated text."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F

from . import data as made
from .base import Data, Task, cross_entropy, dense, disguise

ROWS, LENGTH = 48, 96  # of generated text, per instance


def attention(x: Tensor, qkv: Tensor, out: Tensor, heads: int) -> Tensor:
    """Causal self-attention, x (batch, time, d), qkv (3 d, d), out (d, d)."""
    _, time, d = x.shape
    q, k, v = (y.unflatten(-1, (heads, d // heads)).transpose(1, 2) for y in (x @ qkv.mT).split(d, -1))
    scores = q @ k.mT / math.sqrt(d // heads)
    scores = scores + torch.full((time, time), -1e9).triu(1)
    return (scores.softmax(-1) @ v).transpose(1, 2).flatten(2) @ out.mT


@dataclass(frozen=True)
class TransformerTask(Task):
    """`depth` pre-norm blocks of width `width` over `context` characters of `vocab`."""

    width: int = 16
    depth: int = 1
    heads: int = 2
    expand: int = 2  # of the feed-forward layer
    vocab: int = 12
    context: int = 12
    source: str = "markov"  # or "words"
    init: float = 1.0  # initial matrices are multiplied by it; GPT-2's are about a tenth to a fifth of these

    family: ClassVar[str] = "transformer"

    @classmethod
    def draw(cls, rng: random.Random) -> Task:
        wide = rng.random() < 0.12
        return cls(
            batch=8, width=32 if wide else rng.choice((8, 12, 16)), depth=1 if wide else rng.choice((1, 1, 2)),
            heads=rng.choice((1, 2, 4)), expand=rng.choice((2, 4)), vocab=rng.choice((8, 12, 20)),
            context=rng.choice((8, 12, 16)), source=rng.choice(("markov", "words")),
            init=rng.choice((0.1, 0.25, 0.5, 1.0)), **disguise(rng))  # fmt: skip

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        d, e = self.width, self.expand * self.width
        block = ((d,), (d,), (3 * d, d), (d, d), (d,), (d,), (e, d), (e,), (d, e), (d,))
        return (self.vocab, d), (self.context, d), *block * self.depth, (d,), (d,), (self.vocab, d)

    def start(self, n: int, generator: torch.Generator) -> list[Tensor]:
        d, e = self.width, self.expand * self.width
        one, zero = torch.ones(n, d), torch.zeros(n, d)
        tensors = [
            0.3 * torch.randn(n, self.vocab, d, generator=generator),
            0.1 * torch.randn(n, self.context, d, generator=generator),
        ]
        for _ in range(self.depth):
            tensors += [one, zero, dense(n, 3 * d, d, generator), dense(n, d, d, generator, 0.5)]
            tensors += [one, zero, dense(n, e, d, generator), torch.zeros(n, e), dense(n, d, e, generator, 0.5), zero]
        tensors += [one, zero, dense(n, self.vocab, d, generator, 0.5)]
        return [self.init * x if x.ndim > 2 else x for x in tensors]

    def data(self, n: int, generator: torch.Generator) -> Data:
        make = made.markov_text if self.source == "markov" else made.word_text
        return {"text": make(n, self.vocab, LENGTH, ROWS, generator)}

    def next_batch(self, data: Data, generator: torch.Generator) -> tuple[Tensor, ...]:
        text = data["text"]
        n, rows, length = text.shape
        row = torch.randint(rows, (n, self.batch, 1), generator=generator)
        begin = torch.randint(length - self.context, (n, self.batch, 1), generator=generator)
        window = text[torch.arange(n)[:, None, None], row, begin + torch.arange(self.context + 1)]
        return window[..., :-1], window[..., 1:]

    def loss(self, tensors: list[Tensor], *batch: Tensor) -> Tensor:
        x, y = batch
        rest = iter(tensors)
        x = F.one_hot(x, self.vocab).to(tensors[0].dtype) @ next(rest) + next(
            rest
        )  # a product maps, a look-up does not
        for _ in range(self.depth):
            x = x + attention(
                F.layer_norm(x, (self.width,), next(rest), next(rest)), next(rest), next(rest), self.heads
            )
            hidden = F.gelu(F.layer_norm(x, (self.width,), next(rest), next(rest)) @ next(rest).mT + next(rest))
            x = x + hidden @ next(rest).mT + next(rest)
        return cross_entropy(F.layer_norm(x, (self.width,), next(rest), next(rest)) @ next(rest).mT, y)
