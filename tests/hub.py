"""A stand-in for the hub on this machine, which the real clients of huggingface_hub, transformers and datasets talk to.

It has what they publish and load with: creating, branches, preupload, LFS, commits, trees and resolve. No Xet.
"""

import base64
import hashlib
import json
import re
import socket
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit

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
        requests: Every request so far, `POST /api/repos/create`.
        refusals: The status that requests get whose line a pattern matches; None breaks the connection off.
    """

    def __init__(self):
        super().__init__(ADDRESS, Handler)
        self.repositories: dict[str, Repository] = {}
        self.lfs: dict[str, bytes] = {}
        self.requests: list[str] = []
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
        path = urlsplit(self.path).path
        line = f"{self.command} {path}"
        self.server.requests.append(line)
        headers, content = {}, b""
        try:
            for pattern, status in self.server.refusals.items():
                if re.search(pattern, line):
                    if status is None:
                        self.connection.close()
                        return
                    raise Refusal(status, "refused by the stand-in")
            body = self.read_body()
            for pattern, method in ROUTES:
                if match := re.fullmatch(pattern, line):
                    found = method(self, *(unquote(part or "") for part in match.groups()), body)
                    headers, content = found if isinstance(found, tuple) else ({}, json.dumps(found).encode())
                    break
            else:
                raise Refusal(404, "no such page", "EntryNotFound")
            status = 200
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

    @property
    def is_known(self) -> bool:
        return self.headers.get("Authorization") == f"Bearer {TOKEN}"

    def check_may_write(self) -> None:
        if not self.is_known:
            raise Refusal(401, "Invalid credentials in Authorization header")

    def find_repository(self, kind: str, name: str) -> Repository:
        repository = self.server.repositories.get(f"{kind}/{name}")
        if repository is None or repository.is_private and not self.is_known:
            raise Refusal(401, "no such repository", "RepoNotFound")
        return repository

    def create(self, body: bytes) -> dict:
        self.check_may_write()
        wanted = json.loads(body)
        kind, name = wanted.get("type", "model") + "s", f"{wanted['organization'] or 'you'}/{wanted['name']}"
        url = f"{ENDPOINT}/{'' if kind == 'models' else kind + '/'}{name}"
        if f"{kind}/{name}" in self.server.repositories:
            raise Refusal(409, "You already created this repo", url=url)
        repository = Repository(wanted.get("visibility") == "private")
        repository.commit("main", {})
        self.server.repositories[f"{kind}/{name}"] = repository
        return {"url": url}

    def validate_card(self, body: bytes) -> dict:
        return {"errors": [], "warnings": []}

    def check_auth(self, kind: str, name: str, body: bytes) -> dict:
        self.check_may_write()
        self.find_repository(kind, name)
        return {}

    def create_branch(self, kind: str, name: str, branch: str, body: bytes) -> dict:
        self.check_may_write()
        repository = self.find_repository(kind, name)
        if branch in repository.branches:
            raise Refusal(409, "Reference already exists")
        repository.branches[branch] = repository.branches["main"]
        return {}

    def choose_upload_modes(self, kind: str, name: str, revision: str, body: bytes) -> dict:
        self.check_may_write()
        self.find_repository(kind, name).find_commit(revision)
        modes = {file["path"]: base64.b64decode(file["sample"]) for file in json.loads(body)["files"]}
        return {
            "files": [
                {"path": path, "uploadMode": "lfs" if b"\0" in sample else "regular", "shouldIgnore": False}
                for path, sample in modes.items()
            ]
        }

    def offer_lfs(self, body: bytes) -> dict:
        self.check_may_write()
        upload = {"href": f"{ENDPOINT}/lfs/"}
        return {
            "transfer": "basic",
            "objects": [
                wanted | {"actions": {"upload": {"href": upload["href"] + wanted["oid"]}}}
                for wanted in json.loads(body)["objects"]
            ],
        }

    def store_lfs(self, oid: str, body: bytes) -> dict:
        if hashlib.sha256(body).hexdigest() != oid:
            raise Refusal(400, "other content than announced")
        self.server.lfs[oid] = body
        return {}

    def commit(self, kind: str, name: str, revision: str, body: bytes) -> dict:
        self.check_may_write()
        repository = self.find_repository(kind, name)
        files = dict(repository.read(revision))
        for operation in map(json.loads, body.splitlines()):
            value = operation["value"]
            if operation["key"] == "file":
                files[value["path"]] = base64.b64decode(value["content"])
            elif operation["key"] == "lfsFile":
                files[value["path"]] = self.server.lfs[value["oid"]]
            elif operation["key"] == "deletedFile":
                del files[value["path"]]
        oid = repository.commit(revision, files)
        return {"success": True, "commitOid": oid, "commitUrl": f"{ENDPOINT}/{name}/commit/{oid}"}

    def resolve(self, kind: str, name: str, revision: str, path: str, body: bytes) -> tuple[dict, bytes]:
        repository = self.find_repository(kind.rstrip("/") or "models", name)
        oid = repository.find_commit(revision)
        content = repository.commits[oid].get(path)
        if content is None:
            raise Refusal(404, "Entry not found", "EntryNotFound")
        return {"ETag": f'"{hashlib.sha256(content).hexdigest()}"', "X-Repo-Commit": oid}, content

    def describe(self, kind: str, name: str, revision: str, body: bytes) -> dict:
        repository = self.find_repository(kind, name)
        oid = repository.find_commit(revision or "main")
        siblings = [{"rfilename": path} for path in repository.commits[oid]]
        return {"id": name, "sha": oid, "private": repository.is_private, "siblings": siblings, "tags": []}

    def list_tree(self, kind: str, name: str, revision: str, folder: str, body: bytes) -> list[dict]:
        recursive = parse_qs(urlsplit(self.path).query).get("recursive", ["False"]) == ["True"]
        files = self.find_repository(kind, name).read(revision)
        beginning = f"{folder}/" if folder else ""
        entries = {}
        for path, content in files.items():
            if path.startswith(beginning):
                rest = path.removeprefix(beginning).split("/")
                if len(rest) == 1 or recursive:
                    oid = hashlib.sha1(content).hexdigest()
                    entries[path] = {"type": "file", "path": path, "size": len(content), "oid": oid}
                else:
                    entries[rest[0]] = {"type": "directory", "path": beginning + rest[0], "oid": "0" * 40}
        if folder and not entries:
            raise Refusal(404, "no such folder", "EntryNotFound")
        return list(entries.values())

    def describe_paths(self, kind: str, name: str, revision: str, body: bytes) -> list[dict]:
        wanted = parse_qs(body.decode()).get("paths", [])
        files = self.find_repository(kind, name).read(revision)
        return [
            {"type": "file", "path": path, "size": len(files[path]), "oid": hashlib.sha1(files[path]).hexdigest()}
            for path in wanted
            if path in files
        ]


_API, _REVISION = r"/api/(models|datasets)/([\w.-]+/[\w.-]+)", "([^/]+)"
ROUTES = [
    (r"POST /api/repos/create", Handler.create),
    (r"POST /api/validate-yaml", Handler.validate_card),
    (rf"GET {_API}/auth-check/write", Handler.check_auth),
    (rf"POST {_API}/branch/{_REVISION}", Handler.create_branch),
    (rf"POST {_API}/preupload/{_REVISION}", Handler.choose_upload_modes),
    (r"POST /.*\.git/info/lfs/objects/batch", Handler.offer_lfs),
    (r"PUT /lfs/(\w+)", Handler.store_lfs),
    (rf"POST {_API}/commit/{_REVISION}", Handler.commit),
    (rf"(?:GET|HEAD) /(datasets/)?([\w.-]+/[\w.-]+)/resolve/{_REVISION}/(.+)", Handler.resolve),
    (rf"GET {_API}(?:/revision/{_REVISION})?", Handler.describe),
    (rf"GET {_API}/tree/{_REVISION}/?(.*)", Handler.list_tree),
    (rf"POST {_API}/paths-info/{_REVISION}", Handler.describe_paths),
]
