"""Reads the files of a document as plain JSON values, bounded together, and locates their references (UP-90)."""

import json
import math
import posixpath
import re
from collections.abc import Callable
from typing import Any
from urllib.parse import unquote

from wicketgate.yaml_text import NotYaml, read_yaml

MAX_DOCUMENT_BYTES = 32 * 1024 * 1024
_MAX_YAML_BYTES = 12 * 1024 * 1024
_MAX_VALUES = 2_000_000
_MAX_DEPTH = 200
_MAX_FILES = 5_000
_MAX_FILE_DEPTH = 64
_KNOWN_NAMES = (".json", ".yaml", ".yml")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")

OtherFile = Callable[[str], bytes]
"""Returns the bytes of a file by its path below the document's folder. Raises Unusable."""


class DocumentRefused(Exception):
    """The whole document cannot be used. The text says why and may be shown."""


class TooLarge(DocumentRefused):
    """All files of the document together exceed a bound."""


class Unusable(Exception):
    """One piece of a document cannot be used. The text says why, for the log."""


class PlainReader:
    """Reads one file after the other. What all of them hold together is bounded. *own* is the name of the document in
    its folder."""

    def __init__(self, own: str = "") -> None:
        self._own = own
        self._bytes = MAX_DOCUMENT_BYTES
        self._yaml = _MAX_YAML_BYTES
        self._values = _MAX_VALUES

    def read(self, data: bytes, place: str) -> Any:
        """Returns JSON values with string keys. References become those that count from the document's folder.

        *place* is the path of the file below that folder. Raises DocumentRefused.
        """
        self._bytes -= len(data)
        if self._bytes < 0:
            raise TooLarge(f"the document is larger than {MAX_DOCUMENT_BYTES:,} bytes")
        try:
            text = data.decode("utf-8-sig")
        except UnicodeDecodeError:
            raise DocumentRefused("the document is not UTF-8 text") from None
        try:
            return self._copy(self._parsed(text), place, 0)
        except RecursionError:
            raise DocumentRefused("the document is nested too deeply") from None

    def _parsed(self, text: str) -> Any:
        if text.lstrip()[:1] == "{":
            try:
                return json.loads(text)
            except ValueError:
                pass  # YAML may begin with a brace too
        self._yaml -= len(text)
        if self._yaml < 0:
            raise TooLarge(f"YAML documents may have {_MAX_YAML_BYTES:,} bytes; give it as JSON")
        try:
            return read_yaml(text)
        except NotYaml as error:
            raise DocumentRefused(f"the document is neither JSON nor YAML: {error}") from None

    def _copy(self, value: object, place: str, depth: int) -> Any:
        """Copies JSON values only, bounded, because aliases of YAML can repeat a little very often."""
        self._values -= 1
        if self._values < 0:
            raise TooLarge(f"the document holds more than {_MAX_VALUES:,} values")
        if depth > _MAX_DEPTH:
            raise DocumentRefused("the document is nested too deeply")
        match value:
            case dict():
                copied = {str(key): self._copy(member, place, depth + 1) for key, member in value.items()}
                if isinstance(reference := copied.get("$ref"), str):
                    copied["$ref"] = located(reference, place, self._own)
                return copied
            case list():
                return [self._copy(item, place, depth + 1) for item in value]
            case str() | bool() | int() | None:
                return value
            case float() if math.isfinite(value):
                return value
            case _:
                return None  # NaN, which JSON cannot write


class OtherFiles:
    """The files beside the document that its references name. Each is read once, when it is needed.

    *unread* has the reason for each file that cannot be used.
    """

    def __init__(self, fetch: OtherFile | None, reader: PlainReader) -> None:
        self._fetch = fetch
        self._reader = reader
        self._values: dict[str, Any] = {}
        self.unread: dict[str, str] = {}

    def values(self, path: str) -> Any:
        """Returns the values of the file at *path*. Raises Unusable, and TooLarge."""
        if path not in self._values:
            if path not in self.unread:
                self._read(path)
            if path in self.unread:
                raise Unusable(self.unread[path])
        return self._values[path]

    def _read(self, path: str) -> None:
        if self._fetch is None or not is_below(path):
            raise Unusable("a reference leads out of the document, or is not a path in it; it is not followed")
        if len(self._values) + len(self.unread) >= _MAX_FILES:
            raise TooLarge(f"the document has more than {_MAX_FILES:,} files")
        try:
            if path.count("/") > _MAX_FILE_DEPTH:
                raise Unusable("its folders are nested too deeply")
            self._values[path] = self._reader.read(self._fetch(path), path)
        except TooLarge:
            raise
        except DocumentRefused as reason:
            self.unread[path] = f"{path[:200]}: {str(reason).replace('the document', 'it', 1)}"
        except Unusable as reason:
            self.unread[path] = f"{path[:200]}: {reason}"


def located(reference: str, place: str, own: str = "") -> str:
    """Returns *reference*, held by the file at *place*, as it counts from the document's folder: ``pets/cat.yaml#/a``.

    One that leads elsewhere is returned as it is, and is refused once it is followed.
    """
    path, _, pointer = reference.partition("#")
    if not path:
        return f"{place}#{pointer}" if place else reference
    if _SCHEME.match(path) or path.startswith("/") or "?" in path:
        return reference
    joined = posixpath.normpath(posixpath.join(posixpath.dirname(place), unquote(path)))
    if own and joined == own:
        return f"#{pointer}"
    return f"{joined}#{pointer}" if is_below(joined) else reference


def is_below(path: str) -> bool:
    """Returns whether *path* is that of a document below the folder, in its shortest form."""
    if _SCHEME.match(path) or path.startswith(("/", "../")) or path != posixpath.normpath(path):
        return False
    return path.isprintable() and not set(path) & set("\\#") and path.lower().endswith(_KNOWN_NAMES)
