"""Arguments that the script knows before it is told: of two well-known servers, and ids by the nouns before them.

A model has such knowledge from its training. What is wrong here costs one refusal, which teaches the right arguments.
"""

import re
from collections.abc import Mapping

from wicketgate.models.scripted.arguments import MAX_MESSAGE_CHARS, Filling, fill_arguments, has_loose_values

_ZONE = "string, required: IANA timezone name"
_REPOSITORY = {"repo_path": "string, required"}
# In the form of ``details.expected``, by the tool's own name: mcp-server-time and mcp-server-git.
_EXPECTED: Mapping[str, Mapping[str, str]] = {
    "get_current_time": {"timezone": _ZONE},
    "convert_time": {
        "source_timezone": _ZONE,
        "time": "string matching ^[0-9]{1,2}:[0-9]{2}$, required",
        "target_timezone": _ZONE,
    },
    "git_log": {**_REPOSITORY, "max_count": "integer, default 10"},
    "git_status": _REPOSITORY,
    "git_diff_staged": _REPOSITORY,
    "git_diff_unstaged": _REPOSITORY,
    "git_diff": {**_REPOSITORY, "target": "string, required"},
    "git_show": {**_REPOSITORY, "revision": "string matching ^[0-9a-f]{7,40}$|^HEAD, required"},
    "git_branch": {**_REPOSITORY, "branch_type": "string, required"},
    "git_commit": {**_REPOSITORY, "message": "string, required"},
}
_ID = re.compile(r"(?<![\w-])([a-z]{2,12})_\d{1,15}(?!\w)", re.IGNORECASE)
_WORD = re.compile(r"[a-z]+(?![a-z]*_\d)")


def known_arguments(message: str, name: str) -> Filling | None:
    """Returns the arguments of the tool *name* as far as the message gives them; None if the tool is not known."""
    expected = _EXPECTED.get(name)
    return None if expected is None else fill_arguments(message, expected)


def guessed_arguments(message: str, name: str) -> dict[str, str] | None:
    """Returns the ids of *message*, each as an argument named by its noun: ``ord_0012`` is an ``order_id`` if the tool
    or the message speaks of orders. None if the message holds a value that would be left over."""
    text = message[:MAX_MESSAGE_CHARS]
    if has_loose_values(text):
        return None
    words = [*name.lower().split("_"), *_WORD.findall(text.lower())]
    found: dict[str, str] = {}
    for match in _ID.finditer(text):
        prefix = match[1].lower()
        noun = next((word for word in words if word.startswith(prefix) and word != prefix), prefix)
        argument = f"{noun.removesuffix('s')}_id"
        if argument in found:
            return None  # which of the two goes where is not known
        found[argument] = match[0]
    return found
