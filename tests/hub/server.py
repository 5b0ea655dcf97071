"""A hub on this machine: the part of the hub's protocol that huggingface_hub and datasets use.

`Hub` holds repositories with commits, branches and tags, and answers on a free port of the loopback
interface. Large files are stored apart, on another host; their ETag is their SHA-256. A `Fault`
makes it fail: a status, a closed connection, a stall, or a body cut short.
"""

import hashlib
import json
import re
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

_API = re.compile(
    r"/api/(models|datasets)/([^/]+/[^/]+)(?:/(revision|tree|paths-info)/([^/]+)(.*))?"
)
_RESOLVE = re.compile(r"/(datasets/)?([^/]+/[^/]+)/resolve/([^/]+)/(.+)")
_STORED_APART = (".safetensors", ".parquet", ".bin", ".h5", ".msgpack")  # large files


@dataclass
class Repo:
    """The files of each commit, and the commit of each branch or tag."""

    commits: dict[str, dict[str, bytes]] = field(default_factory=dict)
    refs: dict[str, str] = field(default_factory=dict)

    def commit(self, revision: str) -> str | None:
        return revision if revision in self.commits else self.refs.get(revision)


@dataclass
class Fault:
    """What goes wrong with requests whose `METHOD path` matches, at most `times` times.

    `status` with `code` (the hub's X-Error-Code); `action` is "close", "stall", "cut", which sends
    `bytes` bytes of the body, or "answer", which sends the JSON in `code`.
    """

    match: str
    status: int = 0
    code: str = ""
    action: str = ""
    times: int = 10**6
    bytes: int = 0


@dataclass(frozen=True)
class Request:
    """A request, and the bytes of a file that it was sent."""

    line: str
    start: int = 0
    sent: int = 0
    token: str = ""


class Hub(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.repos: dict[tuple[str, str], Repo] = {}
        self.gated: dict[str, str] = {}  # the token that opens a repository
        self.faults: list[Fault] = []
        self.requests: list[Request] = []
        self.stopped = threading.Event()
        self._thread = threading.Thread(target=self.serve_forever, args=(0.02,), daemon=True)

    def __enter__(self) -> "Hub":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stopped.set()
        self.shutdown()
        self.server_close()
        self._thread.join()

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def push(self, kind: str, name: str, files: dict[str, bytes], *refs: str) -> str:
        """Add a commit with these files, and let `refs` (by default `main`) name it."""
        repo = self.repos.setdefault((kind, name), Repo())
        facts = [len(repo.commits), name, sorted((path, oid(own)) for path, own in files.items())]
        commit = hashlib.sha1(json.dumps(facts).encode()).hexdigest()
        repo.commits[commit] = files
        repo.refs |= dict.fromkeys(refs or ("main",), commit)
        return commit

    def fault(self, line: str) -> Fault | None:
        """Return the fault of a request, and count it."""
        found = next((f for f in self.faults if f.times and re.search(f.match, line)), None)
        if found:
            found.times -= 1
        return found

    def files_sent(self, ending: str) -> list[Request]:
        return [one for one in self.requests if one.sent and one.line.endswith(ending)]

    def handle_error(self, *_: object) -> None:
        """Print nothing when a client goes away."""


def oid(content: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _facts(path: str, content: bytes) -> dict[str, Any]:
    """Return size and hashes of a file, as the hub lists them."""
    facts: dict[str, Any] = {"size": len(content), "blobId": oid(content)}
    if path.endswith(_STORED_APART):
        own = {"sha256": sha256(content), "size": len(content), "pointerSize": 134}
        facts["lfs"] = own
    return facts


class _Handler(BaseHTTPRequestHandler):
    server: Hub
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        """Print nothing."""

    def do_GET(self) -> None:
        self._answer(b"")

    do_HEAD = do_GET

    def do_POST(self) -> None:
        self._answer(self.rfile.read(int(self.headers.get("Content-Length", 0))))

    def _answer(self, body: bytes) -> None:
        path = unquote(urlsplit(self.path).path)
        line = f"{self.command} {path}"
        fault = self.server.fault(line)
        token = self.headers.get("Authorization", "").removeprefix("Bearer ")
        self.server.requests.append(Request(line, token=token))
        if fault and fault.status:
            return self._send_error(fault.status, fault.code)
        if fault and fault.action == "answer":
            return self._send_json(json.loads(fault.code))
        if fault and fault.action == "stall":
            self.server.stopped.wait(60)
        if fault and fault.action in ("stall", "close"):
            self.close_connection = True
            return None
        cut = fault.bytes if fault and fault.action == "cut" else None
        if found := _API.fullmatch(urlsplit(self.path).path):
            kind, name, verb, revision, rest = found.groups()
            return self._api(
                kind, name, verb, unquote(revision or "main"), unquote(rest or ""), body
            )
        if path.startswith("/store/"):
            content = next(
                own
                for repo in self.server.repos.values()
                for files in repo.commits.values()
                for name, own in files.items()
                if path == f"/store/{oid(own)}/{name}"
            )
            return self._send_file(content, {}, cut)
        if found := _RESOLVE.fullmatch(urlsplit(self.path).path):
            kind = "datasets" if found[1] else "models"
            return self._resolve(kind, found[2], unquote(found[3]), unquote(found[4]), cut)
        return self._send_error(404)

    def _commit(self, kind: str, name: str, revision: str) -> tuple[Repo, str] | None:
        """Return a repository and a commit; if there is none, send the hub's error."""
        repo = self.server.repos.get((kind, name))
        if repo is None:
            return self._send_error(401 if "token" not in self.headers else 404, "RepoNotFound")
        needed, given = self.server.gated.get(name), self.headers.get("Authorization")
        if needed and given != f"Bearer {needed}":
            return self._send_error(403 if given else 401, "GatedRepo")
        if (commit := repo.commit(revision)) is None:
            return self._send_error(404, "RevisionNotFound")
        return repo, commit

    def _api(self, kind: str, name: str, verb: str, revision: str, rest: str, body: bytes) -> None:
        found = self._commit(kind, name, revision)
        if found is None:
            return
        repo, commit = found
        files, under = repo.commits[commit], rest.strip("/")
        if verb == "tree":
            asked = parse_qs(urlsplit(self.path).query).get("recursive", [""])
            return self._send_json(_tree(files, under, asked[0].lower() in ("true", "1")))
        if verb == "paths-info":
            asked = _paths(body, self.headers.get("Content-Type", ""))
            return self._send_json([row for row in _tree(files, "", True) if row["path"] in asked])
        blobs = "blobs" in parse_qs(urlsplit(self.path).query)
        siblings = [
            {"rfilename": path, **(_facts(path, own) if blobs else {})}
            for path, own in sorted(files.items())
        ]
        facts = {"id": name, "sha": commit, "private": False, "siblings": siblings}
        return self._send_json(facts | {"tags": [], "downloads": 0, "likes": 0})

    def _resolve(self, kind: str, name: str, revision: str, path: str, cut: int | None) -> None:
        found = self._commit(kind, name, revision)
        if found is None:
            return
        repo, commit = found
        content = repo.commits[commit].get(path)
        headers = {"X-Repo-Commit": commit}
        if content is None:
            return self._send_error(404, "EntryNotFound", headers)
        if not path.endswith(_STORED_APART):
            return self._send_file(content, headers, cut)
        linked = {"X-Linked-Etag": f'"{sha256(content)}"', "X-Linked-Size": str(len(content))}
        store = self.server.endpoint.replace("127.0.0.1", "localhost")  # another host, as there
        place = {"Location": f"{store}/store/{oid(content)}/{path}"}
        return self._send(302, b"", headers | linked | place)

    def _send_file(self, content: bytes, headers: dict[str, str], cut: int | None) -> None:
        given = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        start = int(given[1]) if given else 0
        end = min(int(given[2]) + 1, len(content)) if given and given[2] else len(content)
        part = content[start:end]
        headers = {**headers, "ETag": f'"{oid(content)}"', "Accept-Ranges": "bytes"}
        if given:
            headers["Content-Range"] = f"bytes {start}-{end - 1}/{len(content)}"
        if self.command != "HEAD":
            line = f"GET {unquote(urlsplit(self.path).path)}"
            sent = len(part) if cut is None else min(cut, len(part))
            self.server.requests.append(Request(line, start, sent))
        self._send(206 if given else 200, part, headers, cut)

    def _send_json(self, content: Any) -> None:
        self._send(200, json.dumps(content).encode(), {"Content-Type": "application/json"})

    def _send_error(
        self, status: int, code: str = "", headers: dict[str, str] | None = None
    ) -> None:
        own = {"X-Error-Code": code, "X-Error-Message": f"{code or 'an error'}."}
        self._send(status, b'{"error": "no"}', {**(headers or {}), **own})

    def _send(
        self, status: int, body: bytes, headers: dict[str, str], cut: int | None = None
    ) -> None:
        self.send_response(status)
        for key, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(key, value)
        self.end_headers()
        if self.command == "HEAD":
            return
        with suppress(BrokenPipeError, ConnectionResetError):
            self.wfile.write(body if cut is None else body[:cut])
            self.wfile.flush()
        if cut is not None:
            time.sleep(0.05)  # else the client may lose what it has not read
            self.close_connection = True


def _paths(body: bytes, content_type: str) -> list[str]:
    if "json" in content_type:
        return list(json.loads(body)["paths"])
    return parse_qs(body.decode()).get("paths", [])


def _tree(files: dict[str, bytes], under: str, recursive: bool) -> list[dict[str, Any]]:
    """Return the rows of files and folders below a folder, as the hub lists them."""
    start = f"{under}/" if under else ""
    rows: dict[str, dict[str, Any]] = {}
    for path, content in sorted(files.items()):
        if not path.startswith(start):
            continue
        parts = path.removeprefix(start).split("/")
        for depth in range(1, len(parts) if recursive else min(len(parts), 2)):
            folder = start + "/".join(parts[:depth])
            rows[folder] = {
                "type": "directory",
                "oid": oid(folder.encode()),
                "size": 0,
                "path": folder,
            }
        if recursive or len(parts) == 1:
            rows[path] = {"type": "file", "oid": oid(content), "size": len(content), "path": path}
            if path.endswith(_STORED_APART):
                lfs = {"oid": sha256(content), "size": len(content), "pointerSize": 134}
                rows[path]["lfs"] = lfs
    return list(rows.values())
