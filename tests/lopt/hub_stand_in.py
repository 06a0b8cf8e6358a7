"""A stand-in for the Hugging Face Hub on the loopback interface: the few calls that uploading and downloading make."""

from __future__ import annotations

import base64
import hashlib
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class HubStandIn:
    """`files[repo][name]` is what was committed; `requests` what was asked."""

    def __init__(self) -> None:
        self.files: dict[str, dict[str, bytes]] = {}
        self.requests: list[str] = []
        stand_in = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_: object) -> None: ...
            def do_GET(self) -> None:
                stand_in.answer(self, b"")

            do_HEAD = do_GET

            def do_POST(self) -> None:
                stand_in.answer(self, _body(self))

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        self.thread = threading.Thread(target=self.server.serve_forever, daemon=True)
        self.thread.start()

    def close(self) -> None:
        if not self.thread.is_alive():
            return
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()

    def answer(self, request: BaseHTTPRequestHandler, body: bytes) -> None:
        path = request.path.partition("?")[0]
        self.requests.append(f"{request.command} {path}")
        if "/resolve/" in path:
            return self._file(request, path)
        status, content = self._api(path, body)
        return _send(request, status, json.dumps(content).encode(), {"Content-Type": "application/json"})

    def _api(self, path: str, body: bytes) -> tuple[int, object]:
        if path == "/api/repos/create":
            name = json.loads(body)
            repo = f"{name.get('organization') or 'user'}/{name['name']}"
            self.files.setdefault(repo, {})
            return 200, {"url": f"{self.url}/{repo}"}
        if path == "/api/validate-yaml":
            return 200, {"errors": [], "warnings": []}
        if path == "/api/whoami-v2":
            return 200, {"name": "user", "type": "user", "orgs": []}
        repo = "/".join(path.removeprefix("/api/models/").split("/")[:2])
        if repo not in self.files:
            return 404, {"error": "Repository not found"}
        if "/preupload/" in path:
            names = [f["path"] for f in json.loads(body)["files"]]
            return 200, {"files": [{"path": n, "uploadMode": "regular", "shouldIgnore": False} for n in names]}
        if "/commit/" in path:
            return 200, self._commit(repo, body)
        if "/tree/" in path:
            return 200, [
                {"type": "file", "path": n, "size": len(x), "oid": _sha(x)} for n, x in self.files[repo].items()
            ]
        siblings = [{"rfilename": n} for n in self.files[repo]]
        return 200, {"id": repo, "modelId": repo, "sha": self._revision(repo), "private": False, "siblings": siblings}

    def _commit(self, repo: str, body: bytes) -> dict[str, str]:
        for line in body.splitlines():
            entry = json.loads(line)
            if entry["key"] == "file":
                self.files[repo][entry["value"]["path"]] = base64.b64decode(entry["value"]["content"])
        sha = self._revision(repo)
        return {"commitUrl": f"{self.url}/{repo}/commit/{sha}", "commitOid": sha, "hookOutput": ""}

    def _revision(self, repo: str) -> str:
        return _sha(b"".join(self.files[repo].values()))

    def _file(self, request: BaseHTTPRequestHandler, path: str) -> None:
        repo, _, rest = path.lstrip("/").partition("/resolve/")
        name = rest.partition("/")[2]
        content = self.files.get(repo, {}).get(name)
        if content is None:
            code = "EntryNotFound" if repo in self.files else "RepoNotFound"
            return _send(request, 404, b"{}", {"X-Error-Code": code})
        headers = {"ETag": f'"{_sha(content)}"', "X-Repo-Commit": self._revision(repo), "Accept-Ranges": "bytes"}
        return _send(request, 200, content, headers)


def _sha(content: bytes) -> str:
    return hashlib.sha1(content).hexdigest()


def _body(request: BaseHTTPRequestHandler) -> bytes:
    if request.headers.get("Transfer-Encoding") == "chunked":
        body = b""
        while size := int(request.rfile.readline(), 16):
            body += request.rfile.read(size)
            request.rfile.readline()
        request.rfile.readline()
        return body
    return request.rfile.read(int(request.headers.get("Content-Length", 0)))


def _send(request: BaseHTTPRequestHandler, status: int, content: bytes, headers: dict[str, str]) -> None:
    request.send_response(status)
    for key, value in {**headers, "Content-Length": str(len(content))}.items():
        request.send_header(key, value)
    request.end_headers()
    if request.command != "HEAD":
        request.wfile.write(content)
