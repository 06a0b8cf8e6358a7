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
from .base import Data, Task, cross_entropies, dense, disguise, linear, softmax

LENGTH = 96  # characters of a row of generated text


def attention(x: Tensor, qkv: Tensor, out: Tensor, heads: int) -> Tensor:
    """Causal self-attention of n networks, x (n, batch, time, d), qkv (n, 3 d, d), out (n, d, d)."""
    n, batch, time, d = x.shape
    split = linear(x, qkv).reshape(n * batch, time, 3, heads, d // heads).permute(2, 0, 3, 1, 4)
    q, k, v = split.reshape(3, n * batch * heads, time, d // heads)
    scores = torch.baddbmm(torch.full((time, time), -1e9).triu(1), q, k.mT, alpha=1 / math.sqrt(d // heads))
    return linear((softmax(scores) @ v).view(n, batch, heads, time, -1).transpose(2, 3).flatten(3), out)


def norm(x: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
    """LayerNorm of n networks, x (n, batch, time, d), scale and shift (n, d)."""
    return F.layer_norm(x, x.shape[-1:]) * scale[:, None, None] + shift[:, None, None]


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
    embed: float = 1.0  # initial embeddings are multiplied by it
    tied: bool = False  # the output layer is the embedding of characters
    rows: int = 48  # of text: a few are learned by heart, a thousand are a stream whose gradients stay noisy

    family: ClassVar[str] = "transformer"

    @classmethod
    def draw(cls, rng: random.Random) -> Task:
        width = rng.choices((8, 12, 16, 24, 32, 48), (4, 4, 4, 2, 2, 2))[0]
        tied = rng.random() < 0.4
        return cls(
            batch=rng.choice((8, 8, 16)), width=width, depth=rng.choice((1, 2)),
            heads=rng.choice((1, 2, 4)), expand=rng.choice((2, 4)), vocab=rng.choice((8, 12, 20, 32)),
            context=rng.choice((8, 12, 16, 24, 32)), source=rng.choice(("markov", "words")), tied=tied,
            init=rng.choice((0.1, 0.25, 0.5, 1.0)), embed=rng.choice((0.07, 0.3, 1.0)), rows=rng.choice((48, 1000, 1000)),
            **disguise(rng))  # fmt: skip

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        d, e = self.width, self.expand * self.width
        block = ((d,), (d,), (3 * d, d), (d, d), (d,), (d,), (e, d), (e,), (d, e), (d,))
        head = () if self.tied else ((self.vocab, d),)
        return (self.vocab, d), (self.context, d), *block * self.depth, (d,), (d,), *head

    @property
    def hidden(self) -> tuple[bool, ...]:
        return tuple(len(shape) > 1 for shape in self.shapes)  # embeddings too: `lopt.optim.mulo` says why

    def start(self, n: int, generator: torch.Generator) -> list[Tensor]:
        d, e = self.width, self.expand * self.width
        one, zero = torch.ones(n, d), torch.zeros(n, d)
        tensors = [
            0.3 * self.embed * torch.randn(n, self.vocab, d, generator=generator),
            0.1 * self.embed * torch.randn(n, self.context, d, generator=generator),
        ]
        for _ in range(self.depth):
            tensors += [one, zero, dense(n, 3 * d, d, generator), dense(n, d, d, generator, 0.5)]
            tensors += [one, zero, dense(n, e, d, generator), torch.zeros(n, e), dense(n, d, e, generator, 0.5), zero]
        tensors += [one, zero] if self.tied else [one, zero, dense(n, self.vocab, d, generator, 0.5)]
        return [self.init * x if x.ndim > 2 and i > 1 else x for i, x in enumerate(tensors)]

    def data(self, n: int, generator: torch.Generator) -> Data:
        make = made.markov_text if self.source == "markov" else made.word_text
        return {"text": make(n, self.vocab, LENGTH, self.rows, generator)}

    def next_batch(self, data: Data, generator: torch.Generator) -> tuple[Tensor, ...]:
        text = data["text"]
        n, rows, length = text.shape
        row = torch.randint(rows, (n, self.batch, 1), generator=generator)
        begin = torch.randint(length - self.context, (n, self.batch, 1), generator=generator)
        window = text[torch.arange(n)[:, None, None], row, begin + torch.arange(self.context + 1)]
        return window[..., :-1], window[..., 1:]

    def losses(self, tensors: list[Tensor], *batch: Tensor) -> Tensor:
        x, y = batch  # (n, batch, time)
        token, place, *others = tensors
        rest = iter(others)
        x = linear(F.one_hot(x, self.vocab).to(token.dtype), token.mT) + place[:, None]
        for _ in range(self.depth):
            x = x + attention(norm(x, next(rest), next(rest)), next(rest), next(rest), self.heads)
            hidden = F.gelu(linear(norm(x, next(rest), next(rest)), next(rest), next(rest)))
            x = x + linear(hidden, next(rest), next(rest))
        x = norm(x, next(rest), next(rest))
        return cross_entropies(linear(x, token if self.tied else next(rest)), y).mean((1, 2))
