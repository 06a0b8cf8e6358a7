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
from .base import Data, Task, cross_entropy, dense, disguise, softmax

LENGTH = 96  # characters of a row of generated text


def attention(x: Tensor, qkv: Tensor, out: Tensor, heads: int) -> Tensor:
    """Causal self-attention, x (batch, time, d), qkv (3 d, d), out (d, d)."""
    _, time, d = x.shape
    q, k, v = (y.unflatten(-1, (heads, d // heads)).transpose(1, 2) for y in (x @ qkv.mT).split(d, -1))
    scores = q @ k.mT / math.sqrt(d // heads)
    scores = scores + torch.full((time, time), -1e9).triu(1)
    return (softmax(scores) @ v).transpose(1, 2).flatten(2) @ out.mT


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
        width = rng.choices((8, 12, 16, 24, 32, 48), (4, 4, 4, 2, 1, 1))[0]
        tied = rng.random() < 0.4
        return cls(
            batch=rng.choice((8, 8, 16)), width=width, depth=rng.choice((1, 1, 2)),
            heads=rng.choice((1, 2, 4)), expand=rng.choice((2, 4)), vocab=rng.choice((8, 12, 20, 32)),
            context=rng.choice((8, 12, 16, 24)), source=rng.choice(("markov", "words")), tied=tied,
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

    def loss(self, tensors: list[Tensor], *batch: Tensor) -> Tensor:
        x, y = batch
        token, place, *others = tensors
        rest = iter(others)
        x = F.one_hot(x, self.vocab).to(token.dtype) @ token + place  # a product maps, a look-up does not
        for _ in range(self.depth):
            x = x + attention(
                F.layer_norm(x, (self.width,), next(rest), next(rest)), next(rest), next(rest), self.heads
            )
            hidden = F.gelu(F.layer_norm(x, (self.width,), next(rest), next(rest)) @ next(rest).mT + next(rest))
            x = x + hidden @ next(rest).mT + next(rest)
        x = F.layer_norm(x, (self.width,), next(rest), next(rest))
        return cross_entropy(x @ (token if self.tied else next(rest)).mT, y)
