"""Data that tasks make themselves, and scikit-learn's digits; every function draws n instances at once."""

from __future__ import annotations

import functools

import torch
from torch import Tensor

from .base import dense


def teacher_classes(
    n: int, examples: int, inputs: int, classes: int, noise: float, generator: torch.Generator
) -> dict[str, Tensor]:
    """Classes that a random two-layer network gives to correlated Gaussian inputs, a share `noise` of them wrong.

    x: (n, examples, inputs), y: (n, examples) int64.
    """
    mix = dense(n, inputs, inputs, generator)
    x = torch.randn(n, examples, inputs, generator=generator) @ (mix + torch.eye(inputs)).mT
    x = x / x.std((1, 2), keepdim=True)
    hidden = torch.tanh(x @ dense(n, 2 * inputs, inputs, generator, 2.0).mT)
    logits = hidden @ dense(n, classes, 2 * inputs, generator).mT
    y = (logits - logits.mean(1, keepdim=True)).argmax(-1)  # centred, so that no class has nearly everything
    wrong = torch.rand(n, examples, generator=generator) < noise
    return {"x": x, "y": torch.where(wrong, torch.randint(classes, y.shape, generator=generator), y)}


def teacher_values(
    n: int, examples: int, inputs: int, outputs: int, noise: float, generator: torch.Generator
) -> dict[str, Tensor]:
    """Regression on a random two-layer network; y: (n, examples, outputs), about unit variance."""
    x = torch.randn(n, examples, inputs, generator=generator)
    hidden = torch.tanh(x @ dense(n, 2 * inputs, inputs, generator, 2.0).mT)
    y = hidden @ dense(n, outputs, 2 * inputs, generator).mT
    y = (y - y.mean(1, keepdim=True)) / (y.std(1, keepdim=True) + 1e-6)
    return {"x": x, "y": y + noise * torch.randn(y.shape, generator=generator)}


@functools.cache
def digits() -> tuple[Tensor, Tensor]:
    """scikit-learn's digits: (1797, 8, 8) in about -1 to 1, (1797,) int64.

    Raises:
        ModuleNotFoundError: with what to install, where scikit-learn is missing.
    """
    try:
        from sklearn.datasets import load_digits
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            "tasks on digits need scikit-learn: pip install 'metaopt-toolkit[report]'", name="sklearn"
        ) from error
    found = load_digits()
    return torch.tensor(found.images, dtype=torch.float32) / 8 - 1, torch.tensor(found.target, dtype=torch.int64)


def rotated_digits(n: int, inputs: int, generator: torch.Generator) -> dict[str, Tensor]:
    """Digits through a random linear map to `inputs` numbers, another one for each instance."""
    images, labels = digits()
    x = images.reshape(1, len(images), 64) @ dense(n, inputs, 64, generator).mT
    return {"x": x / x.std((1, 2), keepdim=True), "y": labels.expand(n, -1)}


def templates(
    n: int, examples: int, side: int, classes: int, noise: float, generator: torch.Generator
) -> dict[str, Tensor]:
    """Images of a smooth random pattern per class, shifted by up to two pixels around the edge, in noise.

    x: (n, examples, 1, side, side), y: (n, examples).
    """
    coarse = torch.randn(n * classes, 1, side // 2, side // 2, generator=generator)
    smooth = torch.nn.functional.interpolate(coarse, size=(side, side), mode="bilinear").reshape(n, classes, side, side)
    y = torch.randint(classes, (n, examples), generator=generator)
    x = smooth[torch.arange(n)[:, None], y]
    for axis in (2, 3):
        shift = torch.randint(-2, 3, (n, examples, 1), generator=generator)
        where = (torch.arange(side) + shift) % side  # (n, examples, side)
        index = where[..., None].expand_as(x) if axis == 2 else where[:, :, None].expand_as(x)
        x = x.gather(axis, index)
    x = x + noise * torch.randn(x.shape, generator=generator)
    return {"x": (x / x.std((1, 2, 3), keepdim=True))[:, :, None], "y": y}


def markov_text(n: int, vocab: int, length: int, rows: int, generator: torch.Generator) -> Tensor:
    """Characters of a second-order Markov chain with sparse random odds, (n, rows, length) int64."""
    odds = torch.rand(n, vocab * vocab, vocab, generator=generator).log().mul(-1).pow(4)  # a few followers each
    odds = odds / odds.sum(-1, keepdim=True)
    steps = odds.cumsum(-1)
    text = torch.randint(vocab, (n, rows, length), generator=generator)
    for i in range(2, length):
        state = text[:, :, i - 2] * vocab + text[:, :, i - 1]
        edges = pick_rows(steps, state)
        text[:, :, i] = (torch.rand(n, rows, 1, generator=generator) > edges).sum(-1).clamp(max=vocab - 1)
    return text


def word_text(n: int, vocab: int, length: int, rows: int, generator: torch.Generator, words: int = 24) -> Tensor:
    """Random words of two to five characters, drawn by Zipf's law, a blank (character 0) after each; shape as above."""
    letters = torch.randint(1, vocab, (n, words, 6), generator=generator)
    ends = torch.randint(2, 6, (n, words, 1), generator=generator)
    letters = torch.where(torch.arange(6) < ends, letters, 0)
    odds = 1 / torch.arange(1, words + 1, dtype=torch.float32)
    count = length // 3 + 2
    chosen = torch.multinomial(odds, n * rows * count, replacement=True, generator=generator).reshape(n, rows, count)
    spelled = pick_rows(letters, chosen.flatten(1)).reshape(n, rows, -1)  # six places a word
    used = (torch.arange(6) <= pick_rows(ends, chosen.flatten(1))).reshape(n, rows, -1)  # letters and one blank
    order = used.int().argsort(dim=-1, descending=True, stable=True)
    return spelled.gather(-1, order)[:, :, :length].contiguous()


def pick_rows(x: Tensor, index: Tensor) -> Tensor:
    """x (n, k, ...) by index (n, rows) -> (n, rows, ...)."""
    return x[torch.arange(len(x))[:, None], index]
