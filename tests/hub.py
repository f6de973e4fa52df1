"""A stand-in for the hub on this machine, which the real clients of huggingface_hub, transformers and datasets talk to.

It has what they publish and load with: creating, branches, preupload, LFS, commits, trees and resolve. No Xet.
"""

import base64
import hashlib
import json
import re
import socket
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit

TOKEN = "hf_standin"


def find_free_port() -> int:
    """Return a port of this machine that nothing listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


# The clients read where the hub is when they are imported, so one address serves all tests of a process.
ADDRESS = ("127.0.0.1", find_free_port())
ENDPOINT = f"http://127.0.0.1:{ADDRESS[1]}"


class Refusal(Exception):
    """What the hub answers instead: a status, a code that tells clients more, and what else the body says."""

    def __init__(self, status: int, message: str, code: str = "", **body: str):
        super().__init__(message)
        self.status, self.code, self.body = status, code, {"error": message} | body


@dataclass
class Repository:
    """A repository: the newest commit of each branch, and each commit's files."""

    name: str
    is_private: bool
    branches: dict[str, str] = field(default_factory=dict)
    commits: dict[str, dict[str, bytes]] = field(default_factory=dict)

    def commit(self, branch: str, files: dict[str, bytes]) -> str:
        oid = hashlib.sha1(f"{branch} {len(self.commits)}".encode()).hexdigest()
        self.commits[oid], self.branches[branch] = files, oid
        return oid

    def find_commit(self, revision: str) -> str:
        oid = self.branches.get(revision, revision)
        if oid not in self.commits:
            raise Refusal(404, f"no revision {revision}", "RevisionNotFound")
        return oid

    def read(self, revision: str = "main") -> dict[str, bytes]:
        return self.commits[self.find_commit(revision)]


class Hub(ThreadingHTTPServer):
    """The stand-in.

    Attributes:
        repositories: By kind and name, `models/you/posgpt`.
        lfs: The large files by their SHA-256.
        refusals: The status that requests get whose line a pattern matches; None breaks the connection off.
    """

    def __init__(self):
        super().__init__(ADDRESS, Handler)
        self.repositories: dict[str, Repository] = {}
        self.lfs: dict[str, bytes] = {}
        self.refusals: dict[str, int | None] = {}


class Handler(BaseHTTPRequestHandler):
    """One request."""

    server: Hub

    def log_message(self, *args) -> None:
        pass

    def read_body(self) -> bytes:
        if "chunked" not in self.headers.get("Transfer-Encoding", ""):
            return self.rfile.read(int(self.headers.get("Content-Length", 0)))
        chunks = []
        while size := int(self.rfile.readline(), 16):
            chunks.append(self.rfile.read(size))
            self.rfile.readline()
        return b"".join(chunks)

    def answer(self) -> None:
        line = f"{self.command} {urlsplit(self.path).path}"
        refused = [status for pattern, status in self.server.refusals.items() if re.search(pattern, line)]
        if None in refused:
            self.connection.close()
            return
        status, headers = 200, {}
        try:
            if refused:
                raise Refusal(refused[0], "refused by the stand-in")
            found = self.find_answer(line, self.read_body())
            headers, content = found if isinstance(found, tuple) else ({}, json.dumps(found).encode())
        except Refusal as refusal:
            status, headers = refusal.status, {"X-Error-Message": str(refusal), "X-Error-Code": refusal.code}
            content = json.dumps(refusal.body).encode()
        self.send_response(status)
        for name, value in {"Content-Length": str(len(content)), **headers}.items():
            if value:
                self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    do_GET = do_HEAD = do_POST = do_PUT = answer

    def find_answer(self, line: str, body: bytes) -> object:
        """Return what a request's route returns: a body of JSON, or headers and a body."""
        is_known = self.headers.get("Authorization") == f"Bearer {TOKEN}"
        for pattern, method in ROUTES:
            if not (match := re.fullmatch(pattern, line)):
                continue
            # Large files go to signed addresses.
            if not is_known and self.command == "POST":
                raise Refusal(401, "Invalid credentials in Authorization header")
            parts = {name: unquote(part or "") for name, part in match.groupdict().items()}
            if "name" not in parts:
                return method(self, body, **parts)
            name = parts.pop("name")
            repository = self.server.repositories.get(f"{parts.pop('kind').rstrip('/') or 'models'}/{name}")
            if repository is None or repository.is_private and not is_known:
                raise Refusal(401, "no such repository", "RepoNotFound")
            return method(self, body, repository, **parts)
        raise Refusal(404, "no such page", "EntryNotFound")

    def accept(self, body: bytes, repository: Repository | None = None) -> dict:
        """Find nothing wrong with a card or with a request to write."""
        return {"errors": [], "warnings": []}

    def create(self, body: bytes) -> dict:
        wanted = json.loads(body)
        kind, name = wanted.get("type", "model") + "s", f"{wanted['organization'] or 'you'}/{wanted['name']}"
        url = f"{ENDPOINT}/{'' if kind == 'models' else kind + '/'}{name}"
        if f"{kind}/{name}" in self.server.repositories:
            raise Refusal(409, "You already created this repo", url=url)
        repository = Repository(name, wanted.get("visibility") == "private")
        repository.commit("main", {})
        self.server.repositories[f"{kind}/{name}"] = repository
        return {"url": url}

    def create_branch(self, body: bytes, repository: Repository, revision: str) -> dict:
        if revision in repository.branches:
            raise Refusal(409, "Reference already exists")
        repository.branches[revision] = repository.branches["main"]
        return {}

    def choose_upload_modes(self, body: bytes, repository: Repository, revision: str) -> dict:
        repository.find_commit(revision)
        samples = {file["path"]: base64.b64decode(file["sample"]) for file in json.loads(body)["files"]}
        modes = {path: "lfs" if b"\0" in sample else "regular" for path, sample in samples.items()}
        return {"files": [{"path": path, "uploadMode": modes[path], "shouldIgnore": False} for path in modes]}

    def offer_lfs(self, body: bytes) -> dict:
        offers = [
            wanted | {"actions": {"upload": {"href": f"{ENDPOINT}/lfs/{wanted['oid']}"}}}
            for wanted in json.loads(body)["objects"]
        ]
        return {"transfer": "basic", "objects": offers}

    def store_lfs(self, body: bytes, oid: str) -> dict:
        if hashlib.sha256(body).hexdigest() != oid:
            raise Refusal(400, "other content than announced")
        self.server.lfs[oid] = body
        return {}

    def commit(self, body: bytes, repository: Repository, revision: str) -> dict:
        files = dict(repository.read(revision))
        for operation in map(json.loads, body.splitlines()):
            value = operation["value"]
            if operation["key"] == "file":
                files[value["path"]] = base64.b64decode(value["content"])
            elif operation["key"] == "lfsFile":
                files[value["path"]] = self.server.lfs[value["oid"]]
        oid = repository.commit(revision, files)
        return {"success": True, "commitOid": oid, "commitUrl": f"{ENDPOINT}/{repository.name}/commit/{oid}"}

    def resolve(self, body: bytes, repository: Repository, revision: str, path: str) -> tuple[dict, bytes]:
        content = repository.read(revision).get(path)
        if content is None:
            raise Refusal(404, "Entry not found", "EntryNotFound")
        etag = hashlib.sha256(content).hexdigest()
        return {"ETag": f'"{etag}"', "X-Repo-Commit": repository.find_commit(revision)}, content

    def describe(self, body: bytes, repository: Repository, revision: str) -> dict:
        oid = repository.find_commit(revision or "main")
        siblings = [{"rfilename": path} for path in repository.commits[oid]]
        return {"id": repository.name, "sha": oid, "private": repository.is_private, "siblings": siblings, "tags": []}

    def list_tree(self, body: bytes, repository: Repository, revision: str, path: str) -> list[dict]:
        """Return the files and folders right below a folder."""
        folder, files = f"{path}/" if path else "", repository.read(revision)
        rest = [name.removeprefix(folder) for name in files if name.startswith(folder)]
        if folder and not rest:
            raise Refusal(404, "no such folder", "EntryNotFound")
        folders = sorted({name.split("/")[0] for name in rest if "/" in name})
        found: list[dict] = [{"type": "directory", "path": folder + name, "oid": "0" * 40} for name in folders]
        for path in (folder + name for name in rest if "/" not in name):
            oid = hashlib.sha1(files[path]).hexdigest()
            found.append({"type": "file", "path": path, "size": len(files[path]), "oid": oid})
        return found


_NAME, _REVISION = r"(?P<name>[\w.-]+/[\w.-]+)", "(?P<revision>[^/]+)"
_API = rf"/api/(?P<kind>models|datasets)/{_NAME}"
ROUTES: list[tuple[str, Callable]] = [
    (r"POST /api/repos/create", Handler.create),
    (r"POST /api/validate-yaml", Handler.accept),
    (rf"GET {_API}/auth-check/write", Handler.accept),
    (rf"POST {_API}/branch/{_REVISION}", Handler.create_branch),
    (rf"POST {_API}/preupload/{_REVISION}", Handler.choose_upload_modes),
    (r"POST /.*\.git/info/lfs/objects/batch", Handler.offer_lfs),
    (r"PUT /lfs/(?P<oid>\w+)", Handler.store_lfs),
    (rf"POST {_API}/commit/{_REVISION}", Handler.commit),
    (rf"(?:GET|HEAD) /(?P<kind>datasets/)?{_NAME}/resolve/{_REVISION}/(?P<path>.+)", Handler.resolve),
    (rf"GET {_API}(?:/revision/{_REVISION})?", Handler.describe),
    (rf"GET {_API}/tree/{_REVISION}/?(?P<path>.*)", Handler.list_tree),
]
