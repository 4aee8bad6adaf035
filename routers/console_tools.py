"""``/console/api``: the data of the page Tools: searches, tools, what is quarantined, runs (OPS-228 to OPS-233)."""

import math
from collections.abc import Mapping
from dataclasses import replace

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse

from app.console.search import MAX_HITS, MAX_QUERY_CHARS, search
from app.console.tool import held_tools, run_tool, view_part, whole_tool
from routers.console import context_of, data_router, identity_of
from routers.json_bodies import (
    OBJECT,
    TEXT,
    SurrogateJson,
    json_body,
    json_object,
    number_in,
    parameters,
    query,
)
from routers.refusals import need, refuse
from wicketgate.access.identity import ACTOR_PATTERN, Identity, parse_granted
from wicketgate.access.shares import RETRY_AFTER_S, ShareRefused, too_many_text
from wicketgate.catalog.shortlist import MOST_SHOWN
from wicketgate.errors import HydrateFailed
from wicketgate.gate import Gate
from wicketgate.ports import CallContext, session_key

_MAX_NAME_CHARS = 300
_MAX_SESSION_CHARS = 64
_SESSION = "console search"


_NAME = {"type": "string", "maxLength": _MAX_NAME_CHARS}
_SEARCH = parameters(
    query("q", {"type": "string", "maxLength": MAX_QUERY_CHARS}, required=True),
    query("limit", {"type": "integer", "minimum": 1, "maximum": MAX_HITS, "default": MOST_SHOWN}),
    query("session", {"type": "string", "maxLength": _MAX_SESSION_CHARS}),
)
_TOOL = parameters(query("id", required=True), *(query(name) for name in ("key", "actor", "permissions", "roles")))
_HELD = parameters(query("tool", _NAME))
_RUN = json_body({"id": _NAME, "args": OBJECT, "dry_run": {"type": "boolean", "default": False}}, "id")
_VIEW = json_body({"handle": TEXT, "selector": OBJECT}, "handle", "selector")


def _identity_in(wanted: Mapping[str, str]) -> Identity:
    """Raises ValueError."""
    actor = wanted["actor"]
    if not ACTOR_PATTERN.fullmatch(actor):
        raise ValueError("actor must be letters, digits and ._@:/-, at most 128")
    roles = tuple(role.strip() for role in wanted.get("roles", "").split(",") if role.strip())
    return Identity(actor, parse_granted([wanted.get("permissions", "")]), roles=roles)


def console_tools_router(gate: Gate) -> APIRouter:
    router = data_router()

    @router.get("/search", operation_id="console_search", openapi_extra=_SEARCH)
    async def searched(request: Request) -> Response:
        """The tools that a model would be given for the words `q`, best first, with the reasons. With `session`, a name
        of the caller's choice, they are as a model is sent them in that session, which remembers what it was sent where
        cache-stable order is on.

        `matched` tools have anything of the query; a model is given the first `shown`, as `text` of `tokens`, in place
        of `naive_tokens` with every definition. Of each word as it was written, `terms` are what is looked for,
        `found_in` is the number of tools that have it, and `rarity` what that weighs; an `idle` one says nothing of any
        tool. The `parts` of a hit add up to its `score`, which is null for a tool that does not rank now, and contain
        its `factors`; `sent_score` and `seen` are as it stands in this session; `request` has the places of the words
        of the one request, of several, that counts in its favour. A part is what one term adds: `word` is its place
        among the words; `via` the term that the tool has, the same or a synonym, empty if it was only learned;
        `learned` the share owed to learned words.
        """
        wanted = request.query_params
        words, session = wanted.get("q", ""), wanted.get("session", "")
        limit = number_in(wanted.get("limit", str(MOST_SHOWN)))
        if not words.strip() or len(words) > MAX_QUERY_CHARS or len(session) > _MAX_SESSION_CHARS:
            return refuse(400, "invalid_request", f"q is required, and has at most {MAX_QUERY_CHARS} characters")
        if limit is None or not 1 <= limit <= MAX_HITS:
            return refuse(400, "invalid_request", f"limit is a number from 1 to {MAX_HITS}")
        context = _named(context_of(request), session)
        return SurrogateJson(await search(gate.runtime, words, limit, context, sent=bool(session)))

    @router.get("/tool", operation_id="console_tool", openapi_extra=_TOOL)
    async def tool(request: Request) -> Response:
        """All that there is to know of one tool; with `key`, why the holder of that key may use it; with `actor`,
        `permissions` and `roles` (lists with commas), why such a caller may.

        `traffic` (calls, failed, median in milliseconds), `pin` and `policy` are null without `ops:read`, and a schema
        or definition if it is too large. `no_card` says why no search gives it. The caller itself may not use a
        `hidden` tool, and sees it as an operator. A pin is `none` if nothing is pinned here, `new` if the tool is in
        use without having been accepted; `file` is true if there is a lock file.
        """
        context, wanted = context_of(request), request.query_params
        read, write = context.identity.allows("ops:read"), context.identity.allows("ops:write")
        tool_id, key = wanted.get("id", "")[:_MAX_NAME_CHARS], wanted.get("key", "")
        await gate.runtime.browsing.prepare(context)
        try:
            of = _identity_in(wanted) if read and wanted.get("actor") else None
            return SurrogateJson(whole_tool(gate, tool_id, context, key, of, everything=read, may_accept=write))
        except ValueError as error:
            return refuse(400, "invalid_request", str(error))
        except HydrateFailed as error:
            return refuse(404, "not_found", error.message)

    @router.get("/held", operation_id="console_held", openapi_extra=_HELD)
    async def held(request: Request) -> Response:
        """Lists the tools, and other offers (`rec/prompts`), that are quarantined, or suspicious and in use (`held` is
        false), with reasons. `more` are not listed. `digest` is that of the definition as it is now, empty where it
        cannot be accepted here. Needs `ops:read`."""
        need(request, "ops:read")
        wanted, may_accept = request.query_params.get("tool", ""), identity_of(request).allows("ops:write")
        return SurrogateJson(await held_tools(gate, wanted, may_accept=may_accept))

    @router.post("/execute", operation_id="console_execute", openapi_extra=_RUN)
    async def execute(request: Request) -> Response:
        """Run a tool, or check its arguments, by the caller's own permissions. `envelope` is the answer of
        `tool_execute`, or its failure; `text` what a model reads. `request` and `response` are those of the tool
        server, null if it was not `called` or they are large."""
        context = context_of(request)
        # A place first, as for any other call: the body is read under it.
        try:
            lease = await gate.shared.limits.calls.take(context.identity.actor)
        except ShareRefused as refused:
            headers = {"retry-after": str(max(1, math.ceil(RETRY_AFTER_S)))}
            status = 429 if refused.scope == "actor" else 503
            return refuse(status, "too_many_requests", too_many_text("calls under way", refused.scope), headers)
        try:
            body = await json_object(request)
            tool_id, dry_run = body.get("id"), body.get("dry_run", False)
            if not isinstance(tool_id, str) or not isinstance(dry_run, bool):
                return refuse(400, "invalid_request", "id must be a string, and dry_run true or false")
            answer = await run_tool(gate, tool_id, body.get("args", {}), context, dry_run=dry_run)
        finally:
            gate.shared.limits.calls.give_back(lease)
        return SurrogateJson(answer)

    @router.post("/view", operation_id="console_view", openapi_extra=_VIEW)
    async def view(request: Request) -> JSONResponse:
        """A part of an artifact that a run has left for this caller: `view` is the answer of `tool_view`, or its
        failure."""
        body = await json_object(request)
        handle = body.get("handle")
        if not isinstance(handle, str):
            return refuse(400, "invalid_request", "handle must be a string")
        return SurrogateJson(await view_part(gate, handle, body.get("selector"), context_of(request)))

    return router


def _named(context: CallContext, session: str) -> CallContext:
    """*context* in the search session of this name."""
    if not session:
        return context
    return replace(context, session=session_key(_SESSION, context.identity.actor, session))
