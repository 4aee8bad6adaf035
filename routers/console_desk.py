"""``/console/api``: the operator's desk: servers, keys, the configuration, and what may be changed (OPS-240 to
OPS-252)."""

import asyncio
from typing import Any, get_args

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse

from app.console.accept import Accepting
from app.console.configuration import list_keys, whole_configuration
from app.console.keys import KeyAction, KeyDesk
from app.console.servers import ACTIONS, NotPossible, Operating, list_servers, whole_server
from routers.console import context_of, data_router
from routers.json_bodies import SurrogateJson, in_path, json_body, json_object, parameters
from routers.refusals import need, refuse
from wicketgate.gate import Gate

_MAX_NAME_CHARS = 1_000
_DIGEST_CHARS = 64


_NAME = {"type": "string", "maxLength": _MAX_NAME_CHARS}
_DIGEST = {"type": "string", "maxLength": _DIGEST_CHARS}
_ACCEPT = json_body({"upstream": _NAME, "tool": _NAME, "digest": _DIGEST}, "upstream", "tool", "digest")
_ONE = parameters(in_path("name"))
_TEXTS = {"type": "array", "items": {"type": "string"}}
_DAYS = {"type": ["integer", "null"], "minimum": 1}
_NEW_KEY = json_body(
    {"id": _NAME, "actor": _NAME, "permissions": _TEXTS, "roles": _TEXTS, "days": _DAYS}, "id", "actor"
)
_ACT_ON_KEY = parameters(in_path("id"), in_path("action", {"type": "string", "enum": list(get_args(KeyAction))}))
_ACT = parameters(in_path("name"), in_path("action", {"type": "string", "enum": list(ACTIONS)}))


def console_desk_router(gate: Gate) -> APIRouter:
    router = data_router()
    accepting, operating, desk = Accepting(gate), Operating(gate), KeyDesk(gate)

    @router.get("/servers", operation_id="console_servers")
    async def servers(request: Request) -> Response:
        """The servers behind the gate, those first that need attention; `more` are omitted. Needs `ops:read`.

        `target` is the host, the program, the document or the function, without secrets. A server is `configured` if it
        stands in the configuration, `asleep` if the next call starts it, and `switched` if it was enabled or disabled
        here, until the next reload. `stale`: its tools are those of the last listing. `breaker` is for all callers;
        `held_off` is the number of actors whom their own failures keep away. `held` counts quarantined tools and other
        offers. `places` are calls that run and wait, with their bounds, null for a server that was passed in by a
        program. `ticks` are the last fifty moments at which sessions began and ended, in seconds since the epoch.
        """
        need(request, "ops:read")
        return SurrogateJson(list_servers(gate))

    @router.get("/servers/{name}", operation_id="console_server", openapi_extra=_ONE)
    async def server(request: Request) -> Response:
        """One server, with what happened to it, and the last lines of its stderr. Needs `ops:read`.

        `events` has the newest first, each with the reason (`why`) if a session ended or none came about. `stderr` has
        the newest last, of all starts together, masked of credentials; it is null if this process reads none, and
        `stderr_lines` is the number of all lines. `left_out` are definitions that give no tool, with the reasons.
        `outcomes` has the last act of an operator at each process, by its random id; if it was not `done`, the log
        there has the reason. It is null if the store is unavailable.
        """
        need(request, "ops:read")
        found = await whole_server(gate, request.path_params["name"])
        if found is None:
            raise NotPossible(404, "There is no server of this name")
        return SurrogateJson(found)

    @router.post(
        "/servers/{name}/{action}",
        operation_id="console_operate",
        status_code=202,
        openapi_extra=_ACT,
    )
    async def operated(request: Request) -> Response:
        """Connect a server again, or enable or disable it until the configuration is read again, at all workers and
        replicas. `done` says in words what was done here; `outcomes` of the server shows the other processes. Needs
        `ops:write`; it is audited."""
        need(request, "ops:write")
        action = next((each for each in ACTIONS if each == request.path_params["action"]), None)
        if action is None:
            return refuse(404, "not_found", f"A server can be asked to {', '.join(ACTIONS)}")
        done = await operating.operate(request.path_params["name"], action, context_of(request))
        return JSONResponse({"done": done, "until_reload": action != "reconnect"}, 202)

    @router.post("/accept", operation_id="console_accept", openapi_extra=_ACCEPT)
    async def accept(request: Request) -> Response:
        """Accept the definition of one tool, or of another offer (`rec/prompts`), as it is now: it is written to the
        lock file, and in force here, and within seconds at all workers and replicas; the log of a process that cannot
        has the reason. `digest` is that of the definition that was looked at; 409 if it is another by now. Needs
        `ops:write`."""
        need(request, "ops:write")
        body = await json_object(request)
        wanted = [body.get(name) for name in ("upstream", "tool", "digest")]
        texts = [each for each in wanted if isinstance(each, str) and len(each) <= _MAX_NAME_CHARS]
        if len(texts) < len(wanted):
            return refuse(400, "invalid_request", "upstream, tool and digest must be strings")
        source, name, digest = texts
        await accepting.accept(source, name, digest, context_of(request))
        return SurrogateJson({"accepted": f"{source}:{name}"})

    @router.get("/keys", operation_id="console_keys")
    async def keys(request: Request) -> Response:
        """The keys that callers hold, without their hashes. Times are in seconds since the epoch; null is no bound, or
        no use since `since`. Keys that were `made_here`, by an operator, are kept in the store; the others are in the
        configuration. Needs `ops:read`."""
        need(request, "ops:read")
        return SurrogateJson(list_keys(gate))

    @router.post("/keys", operation_id="console_make_key", status_code=201, openapi_extra=_NEW_KEY)
    async def make_key(request: Request) -> Response:
        """Make a key, which all processes accept until it is revoked; `days` is how long it is good, null for no end.
        It is shown this once; only its hash is kept. Needs `ops:write`, and the permissions and roles that it grants;
        it is audited."""
        need(request, "ops:write")
        body = await json_object(request)
        return JSONResponse({"key": await desk.make(body, context_of(request)), "id": body["id"]}, 201)

    @router.post("/keys/{id}/{action}", operation_id="console_change_key", openapi_extra=_ACT_ON_KEY)
    async def change_key(request: Request) -> Response:
        """Suspend a key, make it good again, or revoke one that was made here, and end what it has started, at all
        processes. Needs `ops:write`; it is audited."""
        need(request, "ops:write")
        action: Any = request.path_params["action"]
        if action not in get_args(KeyAction):
            return refuse(404, "not_found", f"A key can be asked to {', '.join(get_args(KeyAction))}")
        return JSONResponse({"done": await desk.act(request.path_params["id"], action, context_of(request))})

    @router.get("/configuration", operation_id="console_configuration")
    async def configuration(request: Request) -> Response:
        """The values in force, as text; a secret is `${NAME}` by its variable, or `set`. Needs `ops:read`.

        A value `waits` if the configuration has another one by now, which takes effect after a restart. `cut`: there
        are more settings than are shown. `switched` are servers that are enabled or disabled until the next reload,
        `unmatched` patterns that match no tool. `gates` are the virtual gates, each with the number of its tools for a
        caller who may use all. `storage.away` says why the store is not there, `shortfalls` what it
        does not promise.
        """
        need(request, "ops:read")
        # In a thread: there may be hundreds of upstreams, each with patterns for its credentials.
        return SurrogateJson(await asyncio.to_thread(whole_configuration, gate))

    return router
