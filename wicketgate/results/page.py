"""The page: the text of a result that a model reads (EXEC-96 to EXEC-98).

A result that fits is its own text, unchanged. Whatever is not on the page is named by its handle, and warnings stand
below. A page is made from the JSON of an envelope or of a view alone, so that the JSON which a client has sent back
gives the same bytes (CHAT-97).
"""

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from wicketgate.results.envelope import MAX_FACTS, SUMMARY_CHARS

_ENVELOPE_KEYS = frozenset({"status", "summary", "facts", "artifacts", "provenance"})
STRUCTURED = "structured_content"
GOES_ON = " […goes on in facts]"
REST = "[…] "

json_text: Callable[[Any], str] = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode

FAILED = "[the tool reports an error]"
# The origin is known from the call; annotations are for clients that show parts, and "unchecked" is for operators.
_NO_WARNING = frozenset({"tool", "protocol", "tool_id", "content_annotations", "unchecked"})
_VIEW_KEYS = frozenset({"handle", "selector", "content", "total"})
_MAX_JSON_CHARS = 300_000
"""A view has at most 20,000 characters, and JSON writes some of them with twelve."""
_OUR_JSON = re.compile(r'\s*\{\s*"(?:status|handle)"')
_NEXT = re.compile(r"\S|\Z")
_NOTE = re.compile(r"(\n\[… kept out: [^\n]*; go on: tool_view )artifacts\[0\]( \{[^\n]*\]\Z)")
_FILLER = re.compile(r"\(no text; \d+ artifacts: [ -~]*[)…]")
_HANDLES = re.compile(r"^\[artifact (\S+) \(|; go on: tool_view (\S+) \{", re.MULTILINE)


def result_page(envelope: Mapping[str, Any]) -> str:
    """Returns the page of an *envelope* in its JSON form."""
    summary, facts = envelope["summary"], list(envelope["facts"])
    refs = list(envelope["artifacts"])
    # A text that is longer than a summary goes on in the first fact.
    continues = len(summary) == SUMMARY_CHARS and summary.endswith(GOES_ON)
    if continues and facts and facts[0].startswith(REST):
        summary = summary.removesuffix(GOES_ON) + facts.pop(0).removeprefix(REST)
    # A summary that is a beginning tells how to read on in the first artifact, which holds the whole of it. A tool's
    # own text may end in such a line, too.
    is_part = refs and refs[0]["handle"].startswith(("text:", f"{STRUCTURED}:"))
    if is_part and (note := _NOTE.search(summary)):
        summary = f"{summary[: note.start()]}{note[1]}{refs.pop(0)['handle']}{note[2]}"
    # Structured content is shown in place of the facts that were taken from it, unless the text says it all.
    if STRUCTURED in envelope:
        value = envelope[STRUCTURED]
        count = len(value) if isinstance(value, Mapping) else 1
        if facts[MAX_FACTS : MAX_FACTS + 1] == [f"({count - MAX_FACTS} more keys)"]:
            count = MAX_FACTS + 1
        del facts[:count]
        if not says(summary, value):
            summary = _joined(["" if _FILLER.fullmatch(summary) else summary, json_text(value)])
    warnings = {key: value for key, value in envelope["provenance"].items() if key not in _NO_WARNING}
    return _joined(
        [
            FAILED if envelope["status"] == "error" else "",
            summary,
            *facts,
            *map(_ref_line, refs),
            f"[notes: {json_text(warnings)}]" if warnings else "",
        ]
    )


def view_page(view: Mapping[str, Any]) -> str:
    """Returns the page of a *view* in its JSON form: the content, then how much there is and how to go on."""
    following = f"; next: {json_text(view['next'])}" if "next" in view else ""
    return f"{view['content']}\n[total: {view['total']:,}{following}]"


def page_of(body: Mapping[str, Any]) -> str | None:
    """Returns the page of an envelope or a view in its JSON form; None if *body* is anything else."""
    if body.keys() - {STRUCTURED} == _ENVELOPE_KEYS:
        return result_page(body)
    return view_page(body) if body.keys() - {"next"} == _VIEW_KEYS else None


def page_of_json(text: str) -> str | None:
    """Returns the page whose envelope or view has the JSON *text*, which can be a stranger's; None if it has none."""
    if len(text) > _MAX_JSON_CHARS or not _OUR_JSON.match(text):
        return None
    try:
        page = page_of(json.loads(text))
        (page or "").encode()
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None
    return page


@dataclass(frozen=True, slots=True)
class Page:
    """A page that was read back: *text* without our lines, and the *handles* in them, the one to read on in first."""

    failed: bool
    text: str
    handles: tuple[str, ...]


def read_page(text: str) -> Page:
    failed = text.startswith(FAILED)
    lines = text.split("\n")[1 if failed else 0 :]
    own = [line for line in lines if not line.startswith(("[artifact ", "[notes: ", "[total: ", "[… kept out: "))]
    handles = tuple(first or second for first, second in _HANDLES.findall(text))
    return Page(failed, "\n".join(own), handles)


def says(text: str, structured: object) -> bool:
    """Returns true if *text* says all of *structured*: servers send most structured content as text too.

    The SDKs wrap a value that is no object into ``{"result": value}``, and give each element of a list a part of its
    own.
    """
    wrapped = isinstance(structured, Mapping) and structured.keys() == {"result"}
    value = structured["result"] if isinstance(structured, Mapping) and wrapped else structured
    if value == text or (isinstance(value, list) and value and _texts(value) == text):
        return True
    parts = _json_values(text, len(value) if isinstance(value, list) else 1)
    return bool(parts) and (parts in ([structured], [value]) or parts == value)


def _texts(values: Iterable[object]) -> str | None:
    given = list(values)
    return "\n".join(map(str, given)) if all(isinstance(value, str) for value in given) else None


def _json_values(text: str, most: int) -> list[Any]:
    """The JSON values that *text* is made of, one after another; empty if it is anything else. Gives up once it has
    read more than *most*."""
    decoder, values, at = json.JSONDecoder(), list[Any](), 0
    try:
        while at < len(text):
            if len(values) > most:
                return []
            value, at = decoder.raw_decode(text, at)
            values.append(value)
            at = _NEXT.search(text, at).start()  # type: ignore[union-attr]
    except (ValueError, RecursionError):
        return []
    return values


def _ref_line(ref: Mapping[str, Any]) -> str:
    # The kind in the handle says as much as most labels.
    known = ref["label"] in (ref["handle"].partition(":")[0], "full text", "structured content")
    label = "" if known else f": {ref['label']}"
    return f"[artifact {ref['handle']} ({ref['media_type']}, {ref['size_bytes']:,} bytes){label}]"


def _joined(parts: Iterable[str]) -> str:
    return "\n".join(part for part in parts if part)
