"""Skills of servers: their entries read and judged, as items of the catalog, and each file held against its entry
(CARD-41 to CARD-43, ROUTE-60).

An entry is that of ``skills/list`` (extension ``io.modelcontextprotocol/skills``): the URI of the ``SKILL.md``, its
frontmatter, and every file with digest and size, or ``dynamic`` where the server makes them up.
"""

import base64
import binascii
import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any
from urllib.parse import unquote

from wicketgate.catalog.selectable import SelectableItem, origin_digest
from wicketgate.catalog.tool_id import ToolIdParts, ToolNames, format_tool_id, hash8, namespace_of, tool_names
from wicketgate.errors import CatalogError
from wicketgate.yaml_text import NotYaml, read_yaml

SKILLS = "io.modelcontextprotocol/skills"
DIRECTORIES = "directoryRead"
MAIN_FILE = "SKILL.md"
FILE_ARGUMENT = "file"
DYNAMIC = "dynamic"

MAX_FILES = 512
MAX_BYTES = 16 * 1024 * 1024

_NAME = re.compile(r"(?!.*--)[a-z0-9](?:[a-z0-9-]{0,62}[a-z0-9])?")
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_FRONTMATTER = re.compile(r"\ufeff?---[ \t]*\r?\n(.*?)(?<=\n)---[ \t]*(?:\r?\n|\Z)", re.DOTALL)
_MAX_FRONTMATTER = 64 * 1024
_LISTED_CHARS = 120
_MAX_PATH = 1_024
_PLAIN_PATH = re.compile(r"[\w.~@+=/-]{1,120}")
# A server that decodes more often than this is not known.
_MAX_DECODED = 4
_UNPRINTED = re.compile("[\\x00-\\x20\\x7f]")
# Skills and tools of one server have names of their own, so that a rule can mean the one and not the other.
_ID_PREFIX = "skill."


class SkillEntry(dict[str, Any]):
    """An entry among the definitions that a catalog is built of. No definition that came over a wire is one."""


def steady(entry: Mapping[str, Any]) -> dict[str, Any]:
    """The part of an entry that a person accepts, its files in the order of their URIs."""
    resources = entry.get("resources")
    if isinstance(resources, list):
        resources = sorted(resources, key=lambda one: str(one.get("uri")) if isinstance(one, Mapping) else "")
    return {"uri": entry.get("uri"), "frontmatter": entry.get("frontmatter"), "resources": resources}


class SkillMismatch(Exception):
    """A file is not what the entry of its skill says. The text is a fixed phrase."""


@dataclass(frozen=True, slots=True)
class SkillFile:
    uri: str
    digest: str
    size: int


@dataclass(frozen=True, slots=True)
class Skill:
    """One skill as its entry describes it. *root* is its directory, without a slash at the end. *files* are by their
    path in it; None for a dynamic skill."""

    uri: str
    root: str
    frontmatter: Mapping[str, Any]
    files: Mapping[str, SkillFile] | None

    @property
    def name(self) -> str:
        return str(self.frontmatter["name"])

    def holds(self, uri: str) -> bool:
        """True for whatever lies in the directory of the skill, itself included."""
        return uri == self.root or uri.startswith(f"{self.root}/")

    def lists(self, uri: str) -> bool:
        """True for a file of the entry; for any in the directory of a dynamic skill."""
        return self.holds(uri) if self.files is None else self.file(uri) is not None

    def file(self, uri: str) -> SkillFile | None:
        """The entry of the file *uri*, if there is one."""
        return None if self.files is None else self.files.get(uri.removeprefix(f"{self.root}/"))

    def uri_of(self, path: str) -> str | None:
        """The URI of the file *path*; None for a path that may lead out of the directory (ROUTE-65)."""
        return f"{self.root}/{path}" if stays_below(path) else None


def decoded(text: str) -> str:
    """*text* as a server may read it that decodes it, also more than once."""
    for _ in range(_MAX_DECODED):
        if "%" not in text:
            break
        text = unquote(text)
    # Parsers of URLs leave out what is not printed, and some take a backslash for a slash.
    return _UNPRINTED.sub("", text).replace("\\", "/")


def stays_below(path: str) -> bool:
    """True for a path that names one file in a directory for every reader: each of its parts has a name, encoded or
    not."""
    if len(path) > _MAX_PATH or "\\" in path or "?" in path or "#" in path:
        return False
    return not any(part in ("", ".", "..") for part in decoded(path).split("/"))


def read_skill(entry: object) -> Skill:
    """Raises CatalogError, which says what is wrong, for an entry that no host may load."""
    if not isinstance(entry, Mapping):
        raise CatalogError("a skill: not an object")
    uri, frontmatter, resources = entry.get("uri"), entry.get("frontmatter"), entry.get("resources")
    if not isinstance(uri, str) or not uri.endswith(f"/{MAIN_FILE}"):
        raise CatalogError(f"a skill: its uri does not end with /{MAIN_FILE}")
    label, root = f"skill {uri:.200}", uri.removesuffix(f"/{MAIN_FILE}")
    if not isinstance(frontmatter, Mapping):
        raise CatalogError(f"{label}: frontmatter: not an object")
    try:
        too_large = len(json.dumps(frontmatter, ensure_ascii=False)) > _MAX_FRONTMATTER
    except (TypeError, ValueError, RecursionError):
        too_large = True
    if too_large:
        raise CatalogError(f"{label}: frontmatter: more than {_MAX_FRONTMATTER // 1024} KiB, or too deep")
    name, description = frontmatter.get("name"), frontmatter.get("description")
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise CatalogError(f"{label}: frontmatter.name: not the name of a skill")
    if not isinstance(description, str) or not description.strip():
        raise CatalogError(f"{label}: frontmatter.description: a skill needs one that is not blank")
    if root.rpartition("/")[2] != name:
        raise CatalogError(f"{label}: its directory has another name than frontmatter.name")
    if resources == DYNAMIC:
        return Skill(uri, root, frontmatter, None)
    if not isinstance(resources, list):
        raise CatalogError(f"{label}: resources: neither a list nor '{DYNAMIC}'")
    return Skill(uri, root, frontmatter, _files(resources, uri, root, label))


def _files(resources: Sequence[object], uri: str, root: str, label: str) -> Mapping[str, SkillFile]:
    if len(resources) > MAX_FILES:
        raise CatalogError(f"{label}: {len(resources)} files, of which a skill may have {MAX_FILES}")
    files: dict[str, SkillFile] = {}
    for place, given in enumerate(resources):
        match given:
            case {"uri": str(own), "digest": str(digest), "size": int(size)} if not isinstance(size, bool):
                path = own.removeprefix(f"{root}/")
            case _:
                raise CatalogError(f"{label}: resources[{place}]: needs uri, digest and size")
        if path in (own, "") or path in files:
            raise CatalogError(f"{label}: resources[{place}].uri: not within the skill, or there already")
        if not stays_below(path):
            raise CatalogError(f"{label}: resources[{place}].uri: its path may lead out of the skill")
        if not _DIGEST.fullmatch(digest) or size < 0:
            raise CatalogError(f"{label}: resources[{place}]: digest or size is malformed")
        files[path] = SkillFile(own, digest, size)
    if MAIN_FILE not in files:
        raise CatalogError(f"{label}: resources: its own {MAIN_FILE} is missing")
    if sum(file.size for file in files.values()) > MAX_BYTES:
        raise CatalogError(f"{label}: more than {MAX_BYTES // 1024 // 1024} MiB")
    return files


def skill_to_selectable(entry: SkillEntry, server: str, *, named: bool = True) -> SelectableItem:
    """A skill as an item that is run like a tool, and gives the text of one of its files (CARD-41). Raises
    CatalogError."""
    skill = read_skill(entry)
    name, namespace = _ID_PREFIX + skill.name, namespace_of(server)
    try:
        digest = origin_digest(entry, server, skill.uri)
    except CatalogError:
        raise CatalogError(f"skill {skill.uri:.200}: not JSON") from None
    return SelectableItem(
        # The hash stands for the URI alone: a file that changes leaves the id as it is.
        id=format_tool_id(ToolIdParts(namespace, name, None, hash8(skill.uri, {}))),
        kind="skill",
        name=name,
        description=str(skill.frontmatter["description"]),
        namespace=namespace,
        tags=("mcp",),
        args_schema=_arguments(skill),
        operation="query",
        side_effects=False,
        server=server,
        upstream_name=skill.uri,
        listed_name=name,
        home=namespace if named else "",
        digest=digest,
        definition=entry,
    )


def skill_names(skill: Skill, server: str) -> ToolNames:
    """The names by which rules and permissions mean the skill: ``<server>:skill.<name>``, and its URI."""
    return tool_names(namespace_of(server), _ID_PREFIX + skill.name, skill.uri)


def checked_file(skill: Skill, uri: str, result: Mapping[str, Any]) -> Mapping[str, Any]:
    """The one content of a ``resources/read`` of *uri* in *skill*. Raises SkillMismatch if it is not what the entry
    says: length, digest, and of the main file the frontmatter."""
    contents = result.get("contents")
    part = contents[0] if isinstance(contents, list) and len(contents) == 1 else None
    if not isinstance(part, Mapping) or (data := _bytes(part)) is None:
        raise SkillMismatch("it is not one file")
    if skill.files is not None:
        file = skill.file(uri)
        if file is None:
            raise SkillMismatch("it is no file of the skill")
        if len(data) != file.size:
            raise SkillMismatch("it has another length")
        if f"sha256:{hashlib.sha256(data).hexdigest()}" != file.digest:
            raise SkillMismatch("it has another digest")
    if uri == skill.uri and not _same(_frontmatter(data), skill.frontmatter):
        raise SkillMismatch("its frontmatter differs")
    return part


def text_of(part: Mapping[str, Any]) -> str:
    """The text of a content; empty for one that is no text."""
    text = part.get("text")
    if isinstance(text, str):
        return text
    try:
        return (_bytes(part) or b"").decode()
    except UnicodeDecodeError:
        return ""


def as_tool_result(skill: Skill, server: str, path: str, result: Mapping[str, Any]) -> dict[str, Any]:
    """The result of running a skill, of a ``resources/read`` of its file *path*: where it comes from, and the other
    files, beside what the file says."""
    contents = result.get("contents")
    parts = [part for part in contents if isinstance(part, Mapping)] if isinstance(contents, list) else []
    blocks: list[dict[str, Any]] = []
    for part in parts:
        if isinstance(text := part.get("text"), str):
            blocks.append({"type": "text", "text": text})
        else:
            blocks.append({"type": "resource", "resource": dict(part)})
    # First, since of a long text a model is shown the beginning.
    return {"content": [{"type": "text", "text": _origin(skill, server, path)}, *blocks]}


def _origin(skill: Skill, server: str, path: str) -> str:
    named = path if _PLAIN_PATH.fullmatch(path) else "A file"
    lines = [f"[{named} of the skill {skill.name}, written by the server {server}; it grants no permissions.]"]
    others = [] if skill.files is None else [other for other in skill.files if other != path]
    if others:
        # A path that could be read as our own words is only counted.
        plain = [other for other in others if _PLAIN_PATH.fullmatch(other)]
        chars = accumulate(len(other) + 2 for other in plain)
        kept = [other for other, so_far in zip(plain, chars, strict=True) if so_far <= _LISTED_CHARS]
        more = [f"{len(others) - len(kept)} more"] if len(others) > len(kept) else []
        lines.append(f'[Other files, read with {{"{FILE_ARGUMENT}": PATH}}: {", ".join([*kept, *more])}]')
    return "\n".join(lines)


def _arguments(skill: Skill) -> dict[str, Any]:
    file: dict[str, Any] = {"type": "string", "description": f"A file of the skill; {MAIN_FILE} without it"}
    if skill.files is not None:
        file["enum"] = list(skill.files)
    return {"type": "object", "properties": {FILE_ARGUMENT: file}, "additionalProperties": False}


def _bytes(part: Mapping[str, Any]) -> bytes | None:
    match part:
        case {"text": str(text)} if "blob" not in part:
            return text.encode("utf-8", "surrogatepass")
        case {"blob": str(blob)} if "text" not in part:
            try:
                return base64.b64decode(blob, validate=True)
            except (binascii.Error, ValueError):
                return None
    return None


def _frontmatter(data: bytes) -> object:
    """None where there is none that can be read."""
    found = _FRONTMATTER.match(data[:_MAX_FRONTMATTER].decode("utf-8", "replace"))
    try:
        # Strictly: of a key that is given twice, other readers take the other value.
        return read_yaml(found[1], strict=True) if found else None
    except NotYaml:
        return None


def _same(written: object, given: object) -> bool:
    """Compares a frontmatter as it is read here with one that a server has read: a scalar that another reader of YAML
    takes for a date or a yes is the same if its text is."""
    if isinstance(written, Mapping) and isinstance(given, Mapping):
        return written.keys() == given.keys() and all(_same(written[key], given[key]) for key in written)
    if isinstance(written, list) and isinstance(given, list):
        return len(written) == len(given) and all(map(_same, written, given))
    if isinstance(written, Mapping | list) or isinstance(given, Mapping | list):
        return False
    one, other = _spelt(written), _spelt(given)
    return (
        one == other or (isinstance(given, bool) and _BOOLEANS.get(one) is given) or other.startswith(f"{one}T00:00:00")
    )


_BOOLEANS = {"yes": True, "on": True, "y": True, "no": False, "off": False, "n": False}


def _spelt(scalar: object) -> str:
    if isinstance(scalar, bool):
        return "true" if scalar else "false"
    if isinstance(scalar, float) and scalar.is_integer():
        return str(int(scalar))
    return "" if scalar is None else str(scalar)
