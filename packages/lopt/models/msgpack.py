"""A reader of flax's msgpack files (`theta.state`): maps, lists, numbers, strings, arrays. Own code, no dependency.

flax writes an array as extension type 1 holding [shape, dtype name, bytes], a NumPy scalar as type 3, and an array above a
gigabyte in pieces under `__msgpack_chunked_array__`.
"""

from __future__ import annotations

import math
import struct
from typing import Any

import numpy as np

NUMBERS = {0xCA: ">f", 0xCB: ">d", 0xCC: ">B", 0xCD: ">H", 0xCE: ">I", 0xCF: ">Q",
           0xD0: ">b", 0xD1: ">h", 0xD2: ">i", 0xD3: ">q"}  # fmt: skip
SIZED = {0xC4: ("bin", 1), 0xC5: ("bin", 2), 0xC6: ("bin", 4), 0xD9: ("str", 1), 0xDA: ("str", 2), 0xDB: ("str", 4),
         0xDC: ("list", 2), 0xDD: ("list", 4), 0xDE: ("map", 2), 0xDF: ("map", 4),
         0xC7: ("ext", 1), 0xC8: ("ext", 2), 0xC9: ("ext", 4)}  # fmt: skip
DTYPES = (
    "float16",
    "float32",
    "float64",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "bool",
)
DEEPEST = 64


def unpack(data: bytes) -> Any:
    """The one object that `data` holds; ValueError if it is cut short, malformed or followed by more."""
    reader = _Reader(data)
    value = reader.value(0)
    if reader.at != len(data):
        raise ValueError(f"{len(data) - reader.at} bytes follow the object")
    return value


class _Reader:
    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def take(self, n: int) -> bytes:
        piece = self.data[self.at : self.at + n]
        if len(piece) < n:
            raise ValueError(f"it ends at byte {len(self.data)}, in the middle of an object")
        self.at += n
        return piece

    def number(self, size: int) -> int:
        return int.from_bytes(self.take(size), "big")

    def value(self, depth: int) -> Any:
        if depth > DEEPEST:
            raise ValueError(f"it is nested more than {DEEPEST} deep")
        tag = self.take(1)[0]
        if tag < 0x80 or tag >= 0xE0:  # small integers
            return tag if tag < 0x80 else tag - 256
        if tag < 0xC0:  # short maps, lists, strings: the size is in the tag
            kind, size = ("map", tag & 15) if tag < 0x90 else ("list", tag & 15) if tag < 0xA0 else ("str", tag & 31)
            return self.sized(kind, size, depth)
        if tag in (0xC0, 0xC2, 0xC3):
            return {0xC0: None, 0xC2: False, 0xC3: True}[tag]
        if tag in NUMBERS:
            return struct.unpack(NUMBERS[tag], self.take(struct.calcsize(NUMBERS[tag])))[0]
        if 0xD4 <= tag <= 0xD8:
            return self.sized("ext", 1 << (tag - 0xD4), depth)
        if tag in SIZED:
            kind, width = SIZED[tag]
            return self.sized(kind, self.number(width), depth)
        raise ValueError(f"byte {tag:#x} at {self.at - 1} begins no object")

    def sized(self, kind: str, size: int, depth: int) -> Any:
        if kind == "map":
            pairs = {self.value(depth + 1): self.value(depth + 1) for _ in range(size)}
            return _join(pairs) if "__msgpack_chunked_array__" in pairs else pairs
        if kind == "list":
            return [self.value(depth + 1) for _ in range(size)]
        if kind == "ext":
            return _extension(self.take(1)[0], self.take(size))
        piece = self.take(size)
        return piece.decode() if kind == "str" else piece


def _extension(code: int, payload: bytes) -> Any:
    if code not in (1, 3):
        raise ValueError(f"extension type {code} is no array")
    shape, dtype, raw = unpack(payload)
    if dtype not in DTYPES:
        raise ValueError(f"arrays of {dtype} are not read")
    array = np.frombuffer(raw, np.dtype(dtype).newbyteorder("<"))
    if array.size != math.prod(shape):
        raise ValueError(f"an array of shape {tuple(shape)} has {array.size} entries")
    return array.reshape(shape).astype(dtype)


def _join(pieces: dict[str, Any]) -> np.ndarray:
    """An array that was written in pieces: {"shape": {"0": n, ...}, "chunks": {"0": ..., ...}}."""
    shape = [pieces["shape"][str(i)] for i in range(len(pieces["shape"]))]
    return np.concatenate([pieces["chunks"][str(i)] for i in range(len(pieces["chunks"]))]).reshape(shape)
