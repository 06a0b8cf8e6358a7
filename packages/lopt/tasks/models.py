"""Models that `metaopt train` trains, in every size from a laptop's to the papers': GPT, ViT, MLP, a small ResNet.

Written out rather than imported, so that a tiny one and a large one are the same code, every parameter is a plain tensor that
an optimizer may be handed, and activations of a block can be recomputed (`checkpointing`).
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint


class Attention(nn.Module):
    """Multi-head self-attention with one matrix for queries, keys and values."""

    def __init__(self, d: int, heads: int, causal: bool) -> None:
        super().__init__()
        self.heads, self.causal = heads, causal
        self.qkv, self.out = nn.Linear(d, 3 * d), nn.Linear(d, d)

    def forward(self, x: Tensor) -> Tensor:
        parts = self.qkv(x).chunk(3, -1)
        q, k, v = (y.unflatten(-1, (self.heads, -1)).transpose(1, 2) for y in parts)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        return self.out(y.transpose(1, 2).flatten(2))


class Block(nn.Module):
    """Pre-norm transformer block, feed-forward layer four times as wide."""

    def __init__(self, d: int, heads: int, causal: bool) -> None:
        super().__init__()
        self.norm1, self.attention = nn.LayerNorm(d), Attention(d, heads, causal)
        self.norm2, self.wide, self.narrow = nn.LayerNorm(d), nn.Linear(d, 4 * d), nn.Linear(4 * d, d)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norm1(x))
        return x + self.narrow(F.gelu(self.wide(self.norm2(x))))


def through(blocks: nn.ModuleList, x: Tensor, checkpointing: bool) -> Tensor:
    """All blocks in a row; with `checkpointing` their activations are computed again in the backward pass."""
    for block in blocks:
        x = checkpoint(block, x, use_reentrant=False) if checkpointing and torch.is_grad_enabled() else block(x)
    return x


@dataclass(frozen=True)
class Size:
    """layers x width with heads."""

    layers: int
    d: int
    heads: int


GPT_SIZES = {
    "tiny": Size(2, 64, 4),
    "mini": Size(4, 128, 4),
    "10m": Size(6, 320, 5),
    "small": Size(12, 768, 12),  # GPT-2: 124 M with its vocabulary
    "medium": Size(24, 1024, 16),  # 355 M
    "large": Size(36, 1280, 20),
    "xl": Size(48, 1600, 25),
}
VIT_SIZES = {
    "tiny": Size(2, 32, 4),
    "mini": Size(4, 96, 3),
    "ti": Size(12, 192, 3),
    "s": Size(12, 384, 6),
    "b": Size(12, 768, 12),  # with patches of 16 on 224 x 224 and 1,000 classes: 86,567,656 parameters
    "l": Size(24, 1024, 16),
}


def size_named(name: str, sizes: dict[str, Size], what: str) -> Size:
    """Raises ValueError that lists the sizes."""
    if name not in sizes:
        raise ValueError(f"unknown size {name!r} of {what}; allowed: {', '.join(sizes)}")
    return sizes[name]


class GPT(nn.Module):
    """GPT-2: learned positions, pre-norm blocks, output layer tied to the embedding. (batch, time) -> (batch, time, vocab)."""

    outputs = ("token",)  # modules whose weights write predictions, where registration does not show it

    def __init__(self, size: Size, vocab: int, context: int, checkpointing: bool = False) -> None:
        super().__init__()
        self.checkpointing = checkpointing
        self.token, self.place = nn.Embedding(vocab, size.d), nn.Embedding(context, size.d)
        self.blocks = nn.ModuleList(Block(size.d, size.heads, causal=True) for _ in range(size.layers))
        self.norm = nn.LayerNorm(size.d)
        for name, p in self.named_parameters():  # GPT-2's initialisation
            if p.ndim == 2:
                residual = name.endswith(("narrow.weight", "out.weight"))
                nn.init.normal_(p, std=0.02 / (math.sqrt(2 * size.layers) if residual else 1))
            elif name.endswith("bias"):
                nn.init.zeros_(p)

    def forward(self, x: Tensor) -> Tensor:
        h = self.token(x) + self.place.weight[: x.shape[1]]
        return self.norm(through(self.blocks, h, self.checkpointing)) @ self.token.weight.mT


class ViT(nn.Module):
    """Vision transformer with a class token. (batch, channels, side, side) -> (batch, classes)."""

    def __init__(
        self, size: Size, side: int, patch: int, channels: int, classes: int, checkpointing: bool = False
    ) -> None:
        super().__init__()
        if side % patch:
            raise ValueError(f"images of {side} pixels do not divide into patches of {patch}")
        self.checkpointing = checkpointing
        self.patches = nn.Conv2d(channels, size.d, patch, patch)
        self.first = nn.Parameter(torch.zeros(1, 1, size.d))
        self.place = nn.Parameter(torch.randn(1, (side // patch) ** 2 + 1, size.d) * 0.02)
        self.blocks = nn.ModuleList(Block(size.d, size.heads, causal=False) for _ in range(size.layers))
        self.norm, self.head = nn.LayerNorm(size.d), nn.Linear(size.d, classes)

    def forward(self, x: Tensor) -> Tensor:
        h = self.patches(x).flatten(2).mT
        h = torch.cat([self.first.expand(len(h), -1, -1), h], 1) + self.place
        return self.head(self.norm(through(self.blocks, h, self.checkpointing)[:, 0]))


def mlp(inputs: int, width: int, depth: int, outputs: int) -> nn.Module:
    """ReLU network on flattened inputs."""
    widths = [inputs, *[width] * depth]
    layers: list[nn.Module] = [nn.Flatten()]
    for a, b in itertools.pairwise(widths):
        layers += [nn.Linear(a, b), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(width, outputs))


def convnet(channels: int, width: int, classes: int) -> nn.Module:
    """Two 3 x 3 layers, pooling to 2 x 2, a linear layer."""
    return nn.Sequential(nn.Conv2d(channels, width, 3, padding=1), nn.ReLU(), nn.Conv2d(width, 2 * width, 3, padding=1),
                         nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(8 * width, classes))  # fmt: skip


class Residual(nn.Module):
    """Two 3 x 3 layers with batch norm around a shortcut."""

    def __init__(self, a: int, b: int, stride: int) -> None:
        super().__init__()
        self.conv1, self.norm1 = nn.Conv2d(a, b, 3, stride, 1, bias=False), nn.BatchNorm2d(b)
        self.conv2, self.norm2 = nn.Conv2d(b, b, 3, 1, 1, bias=False), nn.BatchNorm2d(b)
        self.shortcut = nn.Conv2d(a, b, 1, stride, bias=False) if stride > 1 or a != b else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm2(self.conv2(F.relu(self.norm1(self.conv1(x)))))
        return F.relu(y + self.shortcut(x))


def resnet(channels: int, width: int, classes: int, blocks: int = 1) -> nn.Module:
    """The ResNet of small images: three stages of `blocks` blocks, widths 1, 2, 4 (ResNet-8 with one, ResNet-20 with three)."""
    layers: list[nn.Module] = [nn.Conv2d(channels, width, 3, 1, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU()]
    a = width
    for stage in range(3):
        for block in range(blocks):
            b = width * 2**stage
            layers.append(Residual(a, b, 2 if stage and not block else 1))
            a = b
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(a, classes))
