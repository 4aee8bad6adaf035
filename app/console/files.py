"""The files of the console: the shell at each of its pages, and what it loads (OPS-261 to OPS-264).

They hold no data and need no credential. All but the shell stand below a path with a digest of them all, so that a
browser may keep them for ever, and never mixes two versions.
"""

import base64
import gzip
import json
import posixpath
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from pathlib import Path

STATIC = Path(__file__).parent / "static"
BASE = "/console/"
PAGES = ("gate", "tools", "chat", "servers", "calls", "approvals", "spending", "keys", "connect", "configuration")
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
_FIRST = "app.js"
"""The scripts that the shell runs."""
_IMPORT = re.compile(r"""^import\b[^;]*?["']([^"';]+)["'];""", re.MULTILINE)
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
    etag = f'"{version}"'
    for name in PAGES:
        shell, policy = _shell(bodies["index.html"].decode(), version, _ahead(bodies, name))
        headers = {**_SAFE, "content-security-policy": policy, "cache-control": "no-cache", "etag": etag}
        page = StaticFile(shell, _TYPES[".html"], headers)
        yield BASE + name, page
        if name == PAGES[0]:
            yield BASE, page
    # What it loads.
    kept = {**_SAFE, "cache-control": "public, max-age=31536000, immutable", "etag": etag}
    for name, body in bodies.items():
        if name != "index.html":
            yield f"{BASE}files/{version}/{name}", StaticFile(body, _TYPES[Path(name).suffix], kept)


def _ahead(bodies: Mapping[str, bytes], page: str) -> list[str]:
    """The elements that name what *page* will load: its styles, and each module, before another one asks for it."""
    view = f"pages/{page}.js"
    found = dict.fromkeys([view])
    waiting = [_FIRST, view]
    while waiting:
        module = waiting.pop()
        for name in _IMPORT.findall(bodies[module].decode()):
            path = (
                posixpath.normpath(posixpath.join(posixpath.dirname(module), name)) if name[0] == "." else _vendor(name)
            )
            if path not in found:
                found[path] = None
                waiting.append(path)
    styles = f'<link rel="preload" href="{{files}}/pages/{page}.css" as="style">'
    return [styles, *(f'<link rel="modulepreload" href="{{files}}/{module}">' for module in sorted(found))]


def _vendor(name: str) -> str:
    return f"vendor/{_IMPORTS[name]}"


def _shell(template: str, version: str, ahead: Sequence[str]) -> tuple[bytes, str]:
    """Returns the shell and its Content-Security-Policy, which has the hash of the one inline element, the map of
    imports."""
    files = f"files/{version}"
    imports = {name: f"./{files}/{_vendor(name)}" for name in _IMPORTS}
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
    whole = (
        template.replace("{importmap}", import_map).replace("{ahead}", "\n    ".join(ahead)).replace("{files}", files)
    )
    return whole.encode(), policy
