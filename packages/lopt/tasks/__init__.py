"""Training tasks by name: a model and where its batches come from.

char_lm      a GPT on made text (or on a folder of tokens)
digits_conv  a small convolutional network on scikit-learn's digits
vit          a ViT, tiny on digits by default; larger ones on made images or a folder of pictures
mlp          a fully connected network on digits
resnet       a small ResNet on digits, made images, or a folder of pictures
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from . import models
from .data import Source, digits, made_images, made_text, picture_folder, token_files


@dataclass(frozen=True)
class TrainingTask:
    """Attributes: make: a fresh model from torch's global seed. source: its data. batch: examples of a step."""

    name: str
    make: Callable[[], nn.Module]
    source: Source
    batch: int

    def loss(self, model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        """() cross-entropy, mean over examples and positions."""
        logits = model(x)
        return F.cross_entropy(logits.flatten(0, -2), y.flatten())


def gpt_task(
    name: str = "char_lm", size: str = "tiny", vocab: int = 32, context: int = 32, batch: int = 16, seed: int = 0,
    data: str | Path | None = None, checkpointing: bool = False,
) -> TrainingTask:  # fmt: skip
    """A GPT; `data` is a folder of token files, made text otherwise."""
    shape = models.size_named(size, models.GPT_SIZES, "GPT")
    source = token_files(data, context, vocab) if data else made_text(vocab, context, seed)
    return TrainingTask(name, lambda: models.GPT(shape, vocab, context, checkpointing), source, batch)


def image_source(data: str | Path | None, side: int, channels: int, classes: int, seed: int) -> tuple[Source, int]:
    """A folder of pictures; else digits, if that is what the images' shape is; else made images. And the channels it has."""
    if data:
        return picture_folder(data, side, classes), 3
    made = digits() if (side, channels, classes) == (8, 1, 10) else made_images(side, channels, classes, seed)
    return made, channels


def vit_task(
    name: str = "vit_tiny", size: str = "tiny", side: int = 8, patch: int = 2, channels: int = 1, classes: int = 10,
    batch: int = 64, seed: int = 0, data: str | Path | None = None, checkpointing: bool = False,
) -> TrainingTask:  # fmt: skip
    """A ViT."""
    shape = models.size_named(size, models.VIT_SIZES, "ViT")
    source, channels = image_source(data, side, channels, classes, seed)
    return TrainingTask(name, lambda: models.ViT(shape, side, patch, channels, classes, checkpointing), source, batch)


def conv_task(
    name: str = "digits_conv", width: int = 16, side: int = 8, channels: int = 1, classes: int = 10, batch: int = 64,
    seed: int = 0, data: str | Path | None = None,
) -> TrainingTask:  # fmt: skip
    """A small convolutional network."""
    source, channels = image_source(data, side, channels, classes, seed)
    return TrainingTask(name, lambda: models.convnet(channels, width, classes), source, batch)


def mlp_task(
    name: str = "mlp", width: int = 64, depth: int = 2, side: int = 8, channels: int = 1, classes: int = 10,
    batch: int = 64, seed: int = 0, data: str | Path | None = None,
) -> TrainingTask:  # fmt: skip
    """A fully connected network on images."""
    source, channels = image_source(data, side, channels, classes, seed)
    inputs = channels * side * side
    return TrainingTask(name, lambda: models.mlp(inputs, width, depth, classes), source, batch)


def resnet_task(
    name: str = "resnet", width: int = 16, blocks: int = 1, side: int = 8, channels: int = 1, classes: int = 10,
    batch: int = 64, seed: int = 0, data: str | Path | None = None,
) -> TrainingTask:  # fmt: skip
    """A small ResNet."""
    source, channels = image_source(data, side, channels, classes, seed)
    return TrainingTask(name, lambda: models.resnet(channels, width, classes, blocks), source, batch)


KINDS: dict[str, Callable[..., TrainingTask]] = {
    "gpt": gpt_task,
    "vit": vit_task,
    "conv": conv_task,
    "mlp": mlp_task,
    "resnet": resnet_task,
}


def make_task(kind: str, **options: object) -> TrainingTask:
    """A task by kind; `options` are those of its function.

    Raises:
        ValueError: an unknown kind; data that are missing or do not fit.
    """
    if kind not in KINDS:
        raise ValueError(f"unknown kind of task {kind!r}; allowed: {', '.join(KINDS)}")
    return KINDS[kind](**options)


def parameters(task: TrainingTask) -> int:
    """How many parameters a task's model has, without allocating them."""
    with torch.device("meta"):
        return sum(p.numel() for p in task.make().parameters())
