"""Sources of batches: made text and digits, which need nothing; files of tokens and folders of images, where there are any.

A source has `sample(batch, generator)`; all chance comes from the generator, so a run's data follow from its seed and are taken
up by restoring the generator.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from ..metatrain.tasks import data as made

SYMBOLS = 128  # of made text at most: their chain's table has SYMBOLS^3 numbers, 8 MB
TOKENS = np.dtype("<u2")  # GPT-2's 50,257 tokens fit in 16 bits
PICTURES = {".jpg", ".jpeg", ".png", ".webp", ".bmp"}
CHANNEL_MEAN, CHANNEL_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # ImageNet's


class Source(Protocol):
    """Where a task's batches come from."""

    def sample(self, batch: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """(inputs (batch, ...), targets (batch, ...))."""
        ...


@dataclass(frozen=True)
class Text:
    """Windows of `context` tokens and the same shifted by one, from rows of tokens; a window lies in one row."""

    rows: tuple[Tensor | np.ndarray, ...]  # (length,) each, longer than the context
    context: int

    def sample(self, batch: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        ends = np.cumsum([len(row) - self.context for row in self.rows])  # of the windows that begin in each row
        window = torch.from_numpy(np.stack([self._window(ends, i) for i in _draw(int(ends[-1]), batch, generator)]))
        return window[:, :-1], window[:, 1:]

    def _window(self, ends: np.ndarray, i: int) -> np.ndarray:
        k = int(np.searchsorted(ends, i, side="right"))
        begin = i - (int(ends[k - 1]) if k else 0)
        return np.asarray(self.rows[k][begin : begin + self.context + 1]).astype(np.int64)


def _draw(n: int, count: int, generator: torch.Generator) -> list[int]:
    return torch.randint(n, (count,), generator=generator).tolist()


def made_text(vocab: int, context: int, seed: int, length: int = 200_000) -> Text:
    """Characters of a second-order Markov chain (see `lopt.metatrain.tasks.data`).

    The chain's table has a row for each pair of characters, so beyond `SYMBOLS` a character stands for several tokens, of which
    one is drawn evenly each time.
    """
    generator = torch.Generator().manual_seed(seed)
    rows, symbols = 256, min(vocab, SYMBOLS)
    text = made.markov_text(1, symbols, length // rows, rows, generator).reshape(-1)
    if (tokens := vocab // symbols) > 1:
        text = text * tokens + torch.randint(tokens, text.shape, generator=generator)
    return Text((text,), context)


def token_files(folder: str | Path, context: int, vocab: int, split: str = "train") -> Text:
    """Tokens of FineWeb-EDU or the like: `folder/SPLIT*.bin`, little-endian 16-bit numbers, mapped and not read.

    Raises:
        ValueError: no such folder or file, fewer tokens than a window needs, or a token beyond the vocabulary.
    """
    files = sorted(Path(folder).glob(f"{split}*.bin"))
    if not files:
        raise ValueError(
            f"no tokens in {folder}: wanted {split}*.bin of 16-bit tokens (see docs/lopt-metatraining.md); "
            "without data=FOLDER the task makes its own"
        )
    rows = [np.memmap(f, TOKENS, "r") for f in files if f.stat().st_size > 2 * context]
    if not rows:
        raise ValueError(f"the files {split}*.bin in {folder} are too short: a window needs {context + 1} tokens")
    largest = max(
        int(row[: 1 << 20].max()) for row in rows
    )  # a look at the beginning: the files may be larger than memory
    if largest >= vocab:
        raise ValueError(f"{folder} has token {largest}, the model's vocabulary ends at {vocab - 1}")
    return Text(tuple(rows), context)


def write_tokens(path: str | Path, tokens: Sequence[int] | np.ndarray) -> Path:
    """A file that `token_files` reads."""
    array = np.asarray(tokens)
    if array.size and (array.min() < 0 or array.max() > 65535):
        raise ValueError(f"tokens from {array.min()} to {array.max()} do not fit in 16 bits")
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(array.astype(TOKENS).tobytes())
    return path


@dataclass(frozen=True)
class Examples:
    """Examples in memory, drawn with replacement."""

    x: Tensor
    y: Tensor

    def sample(self, batch: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        index = _draw(len(self.x), batch, generator)
        return self.x[index], self.y[index]


def digits() -> Examples:
    """scikit-learn's digits, (1797, 1, 8, 8)."""
    x, y = made.digits()
    return Examples(x[:, None], y)


def made_images(side: int, channels: int, classes: int, seed: int, examples: int = 512) -> Examples:
    """Shifted templates in noise (see `lopt.metatrain.tasks.data`), the same in every channel."""
    found = made.templates(1, examples, side, classes, 0.5, torch.Generator().manual_seed(seed))
    return Examples(found["x"][0].expand(-1, channels, -1, -1), found["y"][0])


@dataclass(frozen=True)
class Pictures:
    """Picture files by class: scaled to the shorter side, a random crop and flip, ImageNet's means and deviations."""

    files: tuple[Path, ...]
    labels: tuple[int, ...]
    side: int

    def sample(self, batch: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        chosen = _draw(len(self.files), batch, generator)
        return torch.stack([self._read(i, generator) for i in chosen]), torch.tensor([self.labels[i] for i in chosen])

    def _read(self, i: int, generator: torch.Generator) -> Tensor:
        from PIL import Image, UnidentifiedImageError

        try:
            with Image.open(self.files[i]) as file:
                picture = file.convert("RGB")
        except (UnidentifiedImageError, OSError) as error:
            raise ValueError(f"{self.files[i]} is no picture that can be read ({error})") from None
        scale = self.side / min(picture.size)
        size = [max(self.side, round(n * scale)) for n in picture.size]
        x = torch.from_numpy(np.array(picture.resize((size[0], size[1])), dtype=np.float32)).permute(2, 0, 1) / 255
        top, left, flip = torch.rand(3, generator=generator).tolist()
        top, left = int(top * (x.shape[1] - self.side + 1)), int(left * (x.shape[2] - self.side + 1))
        x = x[:, top : top + self.side, left : left + self.side]
        x = x.flip(2) if flip < 0.5 else x
        return (x - torch.tensor(CHANNEL_MEAN)[:, None, None]) / torch.tensor(CHANNEL_STD)[:, None, None]


def picture_folder(folder: str | Path, side: int, classes: int, split: str = "train") -> Pictures:
    """ImageNet's way to lay out files: `folder/SPLIT/CLASS/picture`, classes in alphabetic order.

    Raises:
        ValueError: no such folder, no pictures, or more classes than the model has.
    """
    root = Path(folder) / split
    names = sorted(p.name for p in root.iterdir() if p.is_dir()) if root.is_dir() else []
    found = [
        (f, i) for i, name in enumerate(names) for f in sorted((root / name).iterdir()) if f.suffix.lower() in PICTURES
    ]
    if not found:
        raise ValueError(
            f"no pictures in {root}: wanted {root}/CLASS/*.jpg (or .png); without data=FOLDER the task makes its own"
        )
    if len(names) > classes:
        raise ValueError(f"{root} has {len(names)} classes, the model {classes}: set task.classes={len(names)}")
    files, labels = zip(*found, strict=True)
    return Pictures(files, labels, side)
