"""Requests of a server for the model of a call's client (sampling) and its folders (roots), as they may be put, and the
answers as the server may have them (ROUTE-55 to ROUTE-57)."""

import re
from collections.abc import Mapping
from typing import Any, Literal

from wicketgate.catalog.shown_words import HIDDEN, visible
from wicketgate.gateway.questions import QuestionRefused
from wicketgate.results.bulk import outweighs

QUESTION = "elicitation/create"
SAMPLE = "sampling/createMessage"
ROOTS = "roots/list"

Kind = Literal["question", "sampling", "roots"]

KINDS: Mapping[str, Kind] = {QUESTION: "question", SAMPLE: "sampling", ROOTS: "roots"}

SERVER_KEY = "wicketgate/server"
"""Under this key of ``_meta`` a client finds the server that asks for its model."""

_MAX_UNITS = 65_536
"""Of one value or sixteen characters: about a megabyte."""
# The context of other servers is left out (``includeContext``): at this client they are all the gate's.
_PROMPT = (
    "messages",
    "modelPreferences",
    "systemPrompt",
    "temperature",
    "maxTokens",
    "stopSequences",
    "metadata",
    "tools",
    "toolChoice",
)
_COMPLETION = ("role", "content", "model", "stopReason")
# One pattern, since a prompt of a megabyte is read on the event loop.
_HIDDEN = re.compile(
    HIDDEN + "|[\r\ud800-\udfff\ue000-\uf8ff\u0600-\u0605\u06dd\u070f\u08e2\U0001bca0-\U0001bca3"
    "\U0001d173-\U0001d17a\U000f0000-\U0010ffff]"
)


def request_of(server: str, method: str, params: object) -> dict[str, Any]:
    """Returns the ``params`` of a request for the client's model or folders as they may be put. Raises
    QuestionRefused."""
    if method == ROOTS:
        return {}
    if not isinstance(params, Mapping):
        raise QuestionRefused("is not well-formed")
    if outweighs(params, _MAX_UNITS):
        raise QuestionRefused("is too large")
    most = params.get("maxTokens")
    if not isinstance(params.get("messages"), list) or isinstance(most, bool) or not isinstance(most, int) or most < 1:
        raise QuestionRefused("is not well-formed")
    prompt = {key: params[key] for key in _PROMPT if key in params}
    # The person who looks at a prompt must see all that the model reads.
    return {**{key: _visible(value) for key, value in prompt.items()}, "_meta": {SERVER_KEY: server}}


def kind_of(answer: object) -> Kind:
    """The kind of request that *answer* answers."""
    if isinstance(answer, Mapping):
        if "roots" in answer:
            return "roots"
        if "model" in answer and "role" in answer:
            return "sampling"
    return "question"


def answer_of(kind: Kind, answer: Mapping[str, Any]) -> dict[str, Any]:
    """The parts of *answer* that belong to its *kind*: nothing else goes to a server."""
    return {key: answer[key] for key in (("roots",) if kind == "roots" else _COMPLETION) if key in answer}


def _visible(value: Any) -> Any:
    """Returns a copy of *value* without hidden characters in its texts. Raises QuestionRefused if a name has any."""
    return visible(value, hidden=_HIDDEN, name=_plain_name)


def _plain_name(key: str) -> str:
    if _HIDDEN.search(key):
        raise QuestionRefused("hides characters in a name")
    return key
