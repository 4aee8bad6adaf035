"""The files of the console: the shell at each of its pages, and what it loads (OPS-261 to OPS-264).

They hold no data and need no credential. All but the shell stand below a path with a digest of them all, so that a
browser may keep them for ever, and never mixes two versions.
"""

import base64
import gzip
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from pathlib import Path

STATIC = Path(__file__).parent / "static"
BASE = "/console/"
PAGES = ("gate", "tools", "chat", "servers", "calls", "approvals", "keys", "configuration")
"""As in static/route.js."""

_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".mjs": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
    ".woff2": "font/woff2",
}
_PACKED = (".html", ".js", ".mjs", ".css", ".svg")
_IMPORTS = {"preact": "preact.mjs", "preact/hooks": "hooks.mjs", "htm": "htm.module.js"}
_SAFE = {
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}


@dataclass(frozen=True)
class StaticFile:
    """*body* as it is sent, with the headers that go with it."""

    body: bytes
    media_type: str
    headers: Mapping[str, str]

    @cached_property
    def packed(self) -> bytes:
        """The body in gzip, made when it is first asked for."""
        return gzip.compress(self.body, mtime=0)

    @property
    def can_be_packed(self) -> bool:
        return any(self.media_type == _TYPES[suffix] for suffix in _PACKED)


class ConsoleFiles:
    """All files by their paths, read once. *size* is that of all together, in bytes."""

    def __init__(self, folder: Path = STATIC) -> None:
        found = {path.relative_to(folder).as_posix(): path for path in sorted(folder.rglob("*")) if _is_shown(path)}
        bodies = {name: path.read_bytes() for name, path in found.items()}
        self.version = _digest(bodies)
        self.size = sum(map(len, bodies.values()))
        self._by_path = dict(_paths(bodies, self.version))

    @property
    def paths(self) -> frozenset[str]:
        return frozenset(self._by_path)

    def find(self, path: str) -> StaticFile | None:
        return self._by_path.get(path)


def _is_shown(path: Path) -> bool:
    return path.is_file() and path.suffix in _TYPES


def _digest(bodies: Mapping[str, bytes]) -> str:
    parts = (name.encode() + b"\0" + sha256(body).digest() for name, body in bodies.items())
    return sha256(b"".join(parts)).hexdigest()[:12]


def _paths(bodies: Mapping[str, bytes], version: str) -> Iterator[tuple[str, StaticFile]]:
    # The shell, at each page: links into it work, and the browser asks for it each time.
    shell, policy = _shell(bodies["index.html"].decode(), version)
    etag = f'"{version}"'
    headers = {**_SAFE, "content-security-policy": policy, "cache-control": "no-cache", "etag": etag}
    page = StaticFile(shell, _TYPES[".html"], headers)
    for name in ("", *PAGES):
        yield BASE + name, page
    # What it loads.
    kept = {**_SAFE, "cache-control": "public, max-age=31536000, immutable", "etag": etag}
    for name, body in bodies.items():
        if name != "index.html":
            yield f"{BASE}files/{version}/{name}", StaticFile(body, _TYPES[Path(name).suffix], kept)


def _shell(template: str, version: str) -> tuple[bytes, str]:
    """Returns the shell and its Content-Security-Policy, which has the hash of the one inline element, the map of
    imports."""
    files = f"files/{version}"
    imports = {name: f"./{files}/vendor/{file}" for name, file in _IMPORTS.items()}
    import_map = json.dumps({"imports": imports}, separators=(",", ":"))
    digest = base64.b64encode(sha256(import_map.encode()).digest()).decode()
    policy = "; ".join(
        (
            "default-src 'none'",
            f"script-src 'self' 'sha256-{digest}'",
            "style-src 'self'",
            "connect-src 'self'",
            "img-src 'self' data:",
            "font-src 'self'",
            "base-uri 'none'",
            "form-action 'none'",
            "frame-ancestors 'none'",
        )
    )
    return template.replace("{importmap}", import_map).replace("{files}", files).encode(), policy
