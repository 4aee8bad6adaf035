"""``/console/api``: the operator's desk: servers, keys, the configuration, and what may be changed (OPS-240 to
OPS-252)."""

import asyncio
from typing import Any, Literal, get_args

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse
from pydantic import BaseModel

from app.console.accept import Accepting
from app.console.configuration import list_keys, whole_configuration
from app.console.keys import KeyAction, KeyDesk
from app.console.servers import ACTIONS, NotPossible, Operating, list_servers, whole_server
from routers.console import context_of, data_router
from routers.json_bodies import SurrogateJson, in_path, json_body, json_object, parameters
from routers.refusals import need, refuse
from wicketgate.fleet.breaker import BreakerState
from wicketgate.fleet.server_log import ServerEventKind
from wicketgate.gate import Gate

_MAX_NAME_CHARS = 1_000
_DIGEST_CHARS = 64


class Places(BaseModel):
    """Calls that run and that wait, with their bounds; null bounds of a server that was passed in by a program."""

    taken: int
    most: int | None
    queued: int
    most_queued: int | None


class Server(BaseModel):
    """*target*: the host, the program, the document or the function, without secrets. *configured*: it stands in the
    configuration. *switched*: enabled or disabled here, until the next reload. *error* and *last_error* are for the
    operator. *stale*: its tools are those of the last listing. *breaker* is for all callers; *held_off*: the number of
    actors whom their own failures keep away. *held*: quarantined tools and other offers. *ticks*: when sessions began
    and ended, in seconds since the epoch, the last fifty."""

    name: str
    kind: str
    target: str
    configured: bool
    enabled: bool
    switched: bool
    required: bool
    state: Literal["connecting", "ready", "waiting", "down", "disabled"]
    error: str
    last_error: str
    stale: bool
    connections: int
    connected_s: float | None
    breaker: BreakerState
    breaker_opened: int
    held_off: int
    turned_away: int
    tools: int
    held: int
    places: Places
    ticks: list[tuple[float, ServerEventKind]]


class Servers(BaseModel):
    """Servers that need attention come first. *more* counts omitted servers. *now* is in seconds since the epoch."""

    servers: list[Server]
    more: int
    now: float


class ServerMoment(BaseModel):
    """*why* is empty, or says why a session ended or none came about."""

    at: float
    kind: ServerEventKind
    why: str


class ServerOutcome(BaseModel):
    """The last act of an operator at one process, named by its random id. If it was not *done*, the log there has the
    reason."""

    process: str
    act: Literal["enable", "disable", "reconnect"]
    done: bool


class WholeServer(Server):
    """*events*: the newest first. *stderr*: the last lines, of all of its starts together, masked of credentials, the
    newest last; null where there is none that this process reads. *stderr_lines* is the number of all lines.
    *left_out*: definitions that give no tool, with the reasons. *outcomes* has an entry for each process that has
    followed an operator; null if the store is unavailable."""

    now: float
    outcomes: list[ServerOutcome] | None
    events: list[ServerMoment]
    stderr: list[str] | None
    stderr_lines: int
    left_out: list[str]
    notes: list[str]


class Done(BaseModel):
    """*done* says in words what was done here; the other processes follow, as `outcomes` of the server shows.
    *until_reload*: it lasts until the configuration is read again."""

    done: str
    until_reload: bool


class Accepted(BaseModel):
    """The definition is pinned as it is now, and in force at this process; the others follow within seconds. The log
    of a process that cannot has the reason."""

    accepted: str


class Key(BaseModel):
    """Times are in seconds since the epoch; null is no bound, or no use since *since*. *made_here*: by an operator, and
    kept in the store; otherwise it is in the configuration."""

    id: str
    actor: str
    permissions: list[str]
    roles: list[str]
    made_here: bool
    not_before: float | None
    expires_at: float | None
    last_used: float | None
    state: Literal["good", "suspended", "expired", "not_yet_valid"]


class Keys(BaseModel):
    """*since*: the process counts uses from then on."""

    keys: list[Key]
    more: int
    since: float
    now: float


class NewKey(BaseModel):
    """*key* is shown this once; only its hash is kept."""

    id: str
    key: str


class KeyChange(BaseModel):
    done: str


class Setting(BaseModel):
    """*value* as text; a secret is ``${NAME}`` by its variable, or ``set``. *waits*: the configuration has another
    value by now, which takes effect after a restart."""

    path: str
    value: str
    default: bool
    waits: bool


class SettingsSection(BaseModel):
    name: str
    rows: list[Setting]


class StorageInForce(BaseModel):
    """*shown* is the URL without user and password. *away*: why it is not there. *shortfalls*: what it does not
    promise."""

    kind: Literal["memory", "sqlite", "redis"]
    shown: str
    away: str
    shortfalls: list[str]


class CatalogInForce(BaseModel):
    version: str
    tools: int


class Configuration(BaseModel):
    """*file*: the file that was read, null without one. *waiting*: settings that take effect after a restart.
    *switched*: servers that are enabled or disabled until the next reload. *unmatched*: patterns that match no tool.
    *cut*: there are more settings than are shown."""

    file: str | None
    loaded_at: float
    since: float
    sections: list[SettingsSection]
    cut: bool
    waiting: list[str]
    switched: dict[str, bool]
    storage: StorageInForce
    catalog: CatalogInForce
    unmatched: list[str]
    left_out: list[str]
    key_notes: list[str]


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

_ACCEPTS = """Accept the definition of one tool, or of another offer (`rec/prompts`), as it is now: it is written to the
lock file, and in force here, and within seconds at all workers and replicas. `digest` is that of the definition that
was looked at; 409 if it is another by now. Needs `ops:write`."""


def console_desk_router(gate: Gate) -> APIRouter:
    router = data_router()
    accepting, operating, desk = Accepting(gate), Operating(gate), KeyDesk(gate)

    @router.get("/servers", operation_id="console_servers", response_model=Servers)
    async def servers(request: Request) -> Response:
        """The servers behind the gate. Needs `ops:read`."""
        need(request, "ops:read")
        return SurrogateJson(list_servers(gate))

    @router.get("/servers/{name}", operation_id="console_server", response_model=WholeServer, openapi_extra=_ONE)
    async def server(request: Request) -> Response:
        """One server, with what happened to it, and the last lines of its stderr. Needs `ops:read`."""
        need(request, "ops:read")
        found = await whole_server(gate, request.path_params["name"])
        if found is None:
            raise NotPossible(404, "There is no server of this name")
        return SurrogateJson(found)

    @router.post(
        "/servers/{name}/{action}",
        operation_id="console_operate",
        response_model=Done,
        status_code=202,
        openapi_extra=_ACT,
    )
    async def operated(request: Request) -> Response:
        """Connect a server again, or enable or disable it until the next reload, at all workers and replicas. Needs
        `ops:write`; it is audited."""
        need(request, "ops:write")
        action = next((each for each in ACTIONS if each == request.path_params["action"]), None)
        if action is None:
            return refuse(404, "not_found", f"A server can be asked to {', '.join(ACTIONS)}")
        done = await operating.operate(request.path_params["name"], action, context_of(request))
        return JSONResponse({"done": done, "until_reload": action != "reconnect"}, 202)

    @router.post(
        "/accept", operation_id="console_accept", response_model=Accepted, openapi_extra=_ACCEPT, description=_ACCEPTS
    )
    async def accept(request: Request) -> Response:
        need(request, "ops:write")
        body = await json_object(request)
        wanted = [body.get(name) for name in ("upstream", "tool", "digest")]
        texts = [each for each in wanted if isinstance(each, str) and len(each) <= _MAX_NAME_CHARS]
        if len(texts) < len(wanted):
            return refuse(400, "invalid_request", "upstream, tool and digest must be strings")
        source, name, digest = texts
        await accepting.accept(source, name, digest, context_of(request))
        return SurrogateJson({"accepted": f"{source}:{name}"})

    @router.get("/keys", operation_id="console_keys", response_model=Keys)
    async def keys(request: Request) -> Response:
        """The keys that callers hold, without their hashes. Needs `ops:read`."""
        need(request, "ops:read")
        return SurrogateJson(list_keys(gate))

    @router.post(
        "/keys", operation_id="console_make_key", response_model=NewKey, status_code=201, openapi_extra=_NEW_KEY
    )
    async def make_key(request: Request) -> Response:
        """Make a key, which all processes accept until it is revoked; `days` is how long it is good, null for no end.
        Needs `ops:write`, and the permissions and roles that it grants; it is audited."""
        need(request, "ops:write")
        body = await json_object(request)
        return JSONResponse({"key": await desk.make(body, context_of(request)), "id": body["id"]}, 201)

    @router.post(
        "/keys/{id}/{action}", operation_id="console_change_key", response_model=KeyChange, openapi_extra=_ACT_ON_KEY
    )
    async def change_key(request: Request) -> Response:
        """Suspend a key, make it good again, or revoke one that was made here, and end what it has started, at all
        processes. Needs `ops:write`; it is audited."""
        need(request, "ops:write")
        action: Any = request.path_params["action"]
        if action not in get_args(KeyAction):
            return refuse(404, "not_found", f"A key can be asked to {', '.join(get_args(KeyAction))}")
        return JSONResponse({"done": await desk.act(request.path_params["id"], action, context_of(request))})

    @router.get("/configuration", operation_id="console_configuration", response_model=Configuration)
    async def configuration(request: Request) -> Response:
        """The values in force, without secrets. Needs `ops:read`."""
        need(request, "ops:read")
        # In a thread: there may be hundreds of upstreams, each with patterns for its credentials.
        return SurrogateJson(await asyncio.to_thread(whole_configuration, gate))

    return router
