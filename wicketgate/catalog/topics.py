"""What a tool is about, by its name alone: the words that cluster a large namespace (DESIGN §3 "Browsing")."""

import re
from collections.abc import Sequence

MAX_TOPICS = 3

# What tools do; the rest of a name says to what they do it. Only the first or the last word is read as one. Words
# that are as often a thing (pull, post, query, test) are left out.
_VERBS = frozenset(
    [
        *("add", "analyze", "append", "apply", "approve", "archive", "assign", "build", "calculate", "cancel"),
        *("change", "check", "clear", "clone", "close", "compare", "complete", "configure", "connect"),
        *("convert", "copy", "count", "create", "deactivate", "delete", "deploy", "describe", "destroy"),
        *("disable", "dismiss", "download", "edit", "enable", "execute", "export", "fetch", "find", "fork"),
        *("generate", "get", "import", "insert", "install", "invoke", "list", "load", "lookup", "make"),
        *("manage", "mark", "merge", "modify", "move", "open", "patch", "publish", "put", "read", "recommend"),
        *("remove", "rename", "replace", "reply", "rerun", "reset", "resolve", "restart", "restore"),
        *("retrieve", "revoke", "run", "save", "scan", "search", "select", "send", "set", "show", "start"),
        *("stop", "submit", "subscribe", "sync", "toggle", "trigger", "unlock", "update", "upload", "upsert"),
        *("validate", "verify", "view", "write"),
    ]
)
_SMALL_WORDS = frozenset(
    [
        "a",
        "all",
        "an",
        "and",
        "as",
        "at",
        "by",
        "for",
        "from",
        "in",
        "into",
        "is",
        "my",
        "of",
        "on",
        "or",
        "the",
        "to",
        "with",
    ]
)

_WORD = re.compile(r"[A-Z]+(?![a-z])[0-9]*|[A-Z]?[a-z]+[0-9]*")


def topics(name: str, namespace: str) -> tuple[str, ...]:
    """Up to three lower-case words that say what *name* is about, the widest first; none for ``_1``.

    ``list_pull_requests`` gives ``pull, requests``; ``acr_registry_list`` gives ``acr, registry``. A leading
    namespace, one verb, small words and bare numbers are left out, as long as anything remains.
    """
    words = [word.lower() for word in _WORD.findall(name)]
    if len(words) > 1 and words[0] == namespace:
        words = words[1:]
    if len(words) > 1 and words[0] in _VERBS:
        words = words[1:]
    elif len(words) > 1 and words[-1] in _VERBS:
        words = words[:-1]
    telling = [word for word in words if word not in _SMALL_WORDS] or words
    return tuple(telling[:MAX_TOPICS])


def stem(word: str) -> str:
    """The same for singular and plural. For comparing only: it is not always a word."""
    if word.endswith("ies") and len(word) > 4:
        return word[:-3] + "y"
    if word.endswith("s") and not word.endswith(("ss", "us", "is")) and len(word) > 3:
        word = word[:-1]
    return word[:-1] if word.endswith(("se", "xe", "ze", "che", "she")) else word


def shared_label(members: Sequence[tuple[str, ...]]) -> tuple[str, int]:
    """The leading words that all *members* have in common, as ``pull_requests``, and how many they are.

    They have at least the first in common by ``stem``. The last is in the plural where any member writes it so.
    """
    length = 1
    shortest = min(len(member) for member in members)
    while length < shortest and len({stem(member[length]) for member in members}) == 1:
        length += 1
    *firsts, last = ({member[position] for member in members} for position in range(length))
    return "_".join([*map(min, firsts), max(last, key=lambda form: (len(form), form))]), length
