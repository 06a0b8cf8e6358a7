"""A network stalls, cuts off and corrupts. What is downloaded must be the right file, whole, or an error; nothing comes twice.

The server is on the loopback address and misbehaves as each test tells it to.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest

from metabench import UserError, catalog, download, hub

BODY = np.random.default_rng(0).bytes(300_000)
SUM = hashlib.sha256(BODY).hexdigest()


class Server(ThreadingHTTPServer):
    """Serves BODY under every path, or `files`; `plan` says how each request in turn misbehaves ("" : it does not)."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.plan: list[str] = []
        self.files: dict[str, bytes] = {}
        self.ranges: list[str | None] = []
        self.released = threading.Event()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class Handler(BaseHTTPRequestHandler):
    server: Server

    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        fault = self.server.plan.pop(0) if self.server.plan else ""
        asked = self.headers.get("Range")
        self.server.ranges.append(asked)
        body = self.server.files.get(self.path, BODY if not self.server.files else None)
        if body is None or fault in ("404", "503"):
            self.send_error(int(fault or 404))
            return
        start = int(asked.removeprefix("bytes=").rstrip("-")) if asked and fault != "ignore range" else 0
        if start >= len(body):
            self.send_error(416)
            return
        rest = body[start:]
        self.send_response(206 if start else 200)
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(body) - 1}/{len(body)}")
        self.send_header("Content-Length", str(len(rest)))
        self.end_headers()
        self._send(rest, fault)

    def _send(self, rest: bytes, fault: str) -> None:
        if fault == "corrupt":
            rest = rest[:1000] + bytes([rest[1000] ^ 1]) + rest[1001:]
        if fault in ("stall", "truncate"):
            self.wfile.write(rest[: len(rest) // 2])
            self.wfile.flush()
            if fault == "stall":
                self.server.released.wait(10)
            self.close_connection = True
            return
        self.wfile.write(rest)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with Server() as running:
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        thread.start()
        yield running
        running.released.set()
        running.shutdown()
        thread.join()


def get(server: Server, path: Path, attempts: int = 3) -> bool:
    return download.fetch(f"{server.address}/file", path, SUM, timeout=0.3, attempts=attempts)


@pytest.mark.parametrize("plan", [[], ["stall"], ["truncate"], ["stall", "truncate"], ["503"], ["truncate", "503"]])
def test_what_passes_is_waited_out_and_the_file_is_right(server: Server, tmp_path: Path, plan: list[str]) -> None:
    server.plan = list(plan)
    assert get(server, tmp_path / "file")
    assert (tmp_path / "file").read_bytes() == BODY
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


def test_only_the_rest_is_asked_for_again(server: Server, tmp_path: Path) -> None:
    server.plan = ["truncate"]
    get(server, tmp_path / "file")
    assert server.ranges == [None, f"bytes={len(BODY) // 2}-"]


def test_a_later_run_goes_on_where_an_earlier_one_stopped(server: Server, tmp_path: Path) -> None:
    server.plan = ["truncate"]
    with pytest.raises(UserError, match="could not be downloaded in 1 attempts"):
        get(server, tmp_path / "file", attempts=1)
    assert not (tmp_path / "file").exists()
    assert (tmp_path / "file.part").stat().st_size == len(BODY) // 2
    assert get(server, tmp_path / "file")
    assert server.ranges[-1] == f"bytes={len(BODY) // 2}-"


def test_a_server_that_ignores_ranges_is_read_from_the_start(server: Server, tmp_path: Path) -> None:
    server.plan = ["truncate", "ignore range"]
    assert get(server, tmp_path / "file")
    assert (tmp_path / "file").read_bytes() == BODY


def test_a_corrupt_file_is_fetched_anew(server: Server, tmp_path: Path) -> None:
    server.plan = ["corrupt"]
    assert get(server, tmp_path / "file")
    assert (tmp_path / "file").read_bytes() == BODY
    assert server.ranges == [None, None]


def test_a_file_that_stays_corrupt_never_appears(server: Server, tmp_path: Path) -> None:
    server.plan = ["corrupt"] * 3
    with pytest.raises(UserError, match="its sha256 is not"):
        get(server, tmp_path / "file")
    assert list(tmp_path.iterdir()) == []


def test_a_part_from_another_file_is_thrown_away(server: Server, tmp_path: Path) -> None:
    (tmp_path / "file.part").write_bytes(b"x" * (len(BODY) + 5))
    assert get(server, tmp_path / "file")
    assert (tmp_path / "file").read_bytes() == BODY


def test_what_is_there_is_not_fetched(server: Server, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(BODY)
    assert not get(server, tmp_path / "file")
    assert server.ranges == []


def test_a_missing_file_ends_at_once(server: Server, tmp_path: Path) -> None:
    server.plan = ["404"] * 3
    with pytest.raises(UserError, match="the server says 404"):
        get(server, tmp_path / "file")
    assert len(server.ranges) == 1


@pytest.mark.parametrize("url", ["file:///etc/hosts", "ftp://host/x", "hub"])
def test_other_addresses_are_refused(tmp_path: Path, url: str) -> None:
    with pytest.raises(UserError, match="only http"):
        download.fetch(url, tmp_path / "x", SUM)


def test_a_git_blob_id_is_what_git_says(tmp_path: Path) -> None:
    (tmp_path / "hello").write_bytes(b"hello\n")
    assert download.checksum(tmp_path / "hello", "git_blob") == "ce013625030ba8dba906f756967f9e9ca394464a"


@pytest.fixture
def small_hub(server: Server, monkeypatch: pytest.MonkeyPatch) -> Server:
    """A hub of two kernels, with recordings that can be read."""
    source = (Path(__file__).parent / "data" / "minimised.json.gz").read_bytes()
    files = {"LICENSE": b"MIT", "cachefiles/one/bench.json.gz": source, "cachefiles/two/bench.json.gz": source}
    server.files = {f"/{path}": body for path, body in files.items()}
    sums = {path: {"sha256": hashlib.sha256(body).hexdigest()} for path, body in files.items()}
    monkeypatch.setattr(
        hub, "manifest", lambda: {"files": sums, "commit": "c", "url": "https://invalid/{commit}/{path}"}
    )
    return server


def test_a_hub_is_downloaded_from_a_mirror_and_read(small_hub: Server) -> None:
    fetched = hub.fetch(hub.folder(), ["two"], mirror=small_hub.address, timeout=1)
    assert [p.relative_to(hub.folder()).as_posix() for p in fetched] == ["LICENSE", "cachefiles/two/bench.json.gz"]
    assert len(hub.fetch(hub.folder(), mirror=small_hub.address, timeout=1)) == 1  # the rest
    assert list(catalog.available("hub")) == ["one/bench", "two/bench"]
    assert [r.name for r in catalog.select("two", "hub")] == ["two/bench"]


def test_the_command_downloads(small_hub: Server, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    pytest.importorskip("rich", reason="the command needs rich (extra tune)")
    from metaopt import spaces

    assert spaces.main(["download", "one", "--to", str(tmp_path), "--mirror", small_hub.address]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == f"{tmp_path}  2 files, 2 of them new"


def test_an_unknown_kernel_lists_the_known_ones() -> None:
    with pytest.raises(UserError, match="allowed: convolution_milo, dedispersion_milo, gemm_milo, hotspot_milo"):
        hub.files_of(["gem"])


def test_a_hub_that_was_not_downloaded_says_how(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    with pytest.raises(UserError, match="metaopt spaces download"):
        catalog.available("hub")


def test_the_manifest_agrees_with_the_shared_copies(shared_dir: Path) -> None:
    """Every file of the hub that lies beside this checkout has the checksum that the manifest expects."""
    there = {p: shared_dir / "spaces" / p for p in hub.manifest()["files"]}
    checked = 0
    for path, sums in json.loads((Path(hub.__file__).with_name("hub.json")).read_text())["files"].items():
        if there[path].is_file():
            kind = "sha256" if "sha256" in sums else "git_blob"
            assert download.checksum(there[path], kind) == sums[kind], path
            checked += 1
    assert checked >= 18
