"""What the parent and the process that serves candidates say to each other: frames on a socket, and the short
messages of one run.

Control channel (a Unix socket, parent <-> server): a JSON object with its length in front, then as many raw bytes as
it announces.
Asking channel (two pipes, candidate <-> parent): the candidate writes a row number, or ILLEGAL, or REPORT and a JSON
object; the parent answers with cost and spent fraction, or with END. Nothing that a candidate sends is ever unpickled
or evaluated.
"""

from __future__ import annotations

import json
import socket
import struct
from typing import Any

ASK = struct.Struct("<i")
"""A row number, or one of the two below."""
ILLEGAL = -1
REPORT = -2

ANSWER = struct.Struct("<ddB")
"""Cost, spent fraction, GO or END."""
GO, END = 0, 1

LENGTH = struct.Struct("<I")
LONGEST_REPORT = 16_384
SOURCE_NAME = "<candidate>"


def send(
    channel: socket.socket, message: dict[str, Any], payload: bytes = b"", descriptors: tuple[int, ...] = ()
) -> None:
    """Send one frame; descriptors, if any, go with its first byte."""
    head = json.dumps({**message, "payload": len(payload), "descriptors": len(descriptors)}).encode()
    frame = LENGTH.pack(len(head)) + head + payload
    sent = socket.send_fds(channel, [frame], list(descriptors)) if descriptors else 0
    channel.sendall(memoryview(frame)[sent:])


def receive(channel: socket.socket) -> tuple[dict[str, Any], bytes, list[int]] | None:
    """Receive one frame: message, payload, descriptors. None at the end of the channel."""
    first, descriptors, _, _ = socket.recv_fds(channel, LENGTH.size, 8)
    if not first:
        return None
    head = first + _exactly(channel, LENGTH.size - len(first))
    message = json.loads(_exactly(channel, LENGTH.unpack(head)[0]))
    return message, _exactly(channel, message["payload"]), list(descriptors)


def _exactly(channel: socket.socket, count: int) -> bytes:
    parts = []
    while count:
        part = channel.recv(min(count, 1 << 20))
        if not part:
            raise EOFError("the channel ended in the middle of a frame")
        parts.append(part)
        count -= len(part)
    return b"".join(parts)
