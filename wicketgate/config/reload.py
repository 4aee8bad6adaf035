"""Reads the configuration again while the service runs, and puts it in force (OPS-7 to OPS-9).

``Reloader`` decides when to read: on request, or when the file has changed. ``Applied`` holds the settings in force and
exchanges them in one step, or leaves everything as it was. Upstreams, their policies, quotas, spending, access rules
and flow, pins, words of tools, keys and the log level change at once; everything else is logged as waiting for a
restart.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import anyio
from pydantic import BaseModel

from wicketgate.config.runtime import runtime_policies
from wicketgate.config.settings import LOOPBACK_HOSTS, Settings, UpstreamSettings
from wicketgate.config.upstreams import upstream_limits
from wicketgate.errors import CatalogError, ConfigError
from wicketgate.fleet.member import Member, MultiplexUpstream
from wicketgate.fleet.turns import AT_ONCE
from wicketgate.gateway.lifecycle import Lifecycle
from wicketgate.gateway.runtime import ProxyRuntime

log = logging.getLogger("wicketgate.configuration")

_LOOK_EVERY_S = 0.5

_LIVE_SECTIONS = (
    "upstreams",
    "quota",
    "access",
    "access_default",
    "flow",
    "auth",
    "pins",
    "browse",
    "spending",
    "from_variables",
)
_LIVE = {*_LIVE_SECTIONS, "server.log_level"}

MakeMember = Callable[[UpstreamSettings], Member]


@dataclass(frozen=True, slots=True)
class Changes:
    """The effects of one application, as names of upstreams.

    A *changed* upstream has a new session, an *adjusted* one keeps its own. *waiting* names the settings that take
    effect after a restart.
    """

    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    adjusted: tuple[str, ...] = ()
    waiting: tuple[str, ...] = ()


@dataclass(eq=False, repr=False)
class Applied:
    """*settings* are those in force. A setting that waits for a restart keeps its old value there, and is named in
    *waiting*. *switched* are the upstreams that are enabled or disabled otherwise than the configuration says, until it
    is read again (OPS-243)."""

    settings: Settings
    _runtime: ProxyRuntime
    _fleet: MultiplexUpstream
    _lifecycle: Lifecycle
    _make: MakeMember

    def __post_init__(self) -> None:
        self._steps: list[Callable[[Settings], None]] = []
        # Unlike that of asyncio, not bound to the event loop where it was first waited for.
        self._one_at_a_time = anyio.Lock()
        self.waiting: tuple[str, ...] = ()
        self.switched: Mapping[str, bool] = {}

    def on_apply(self, step: Callable[[Settings], None]) -> None:
        """Adds a *step* to each application; it must neither wait nor fail."""
        self._steps.append(step)

    async def apply(self, wanted: Settings) -> Changes:
        """Puts *wanted* in force, as far as it can be. Raises ConfigError; then nothing has changed."""
        async with self._one_at_a_time:
            before = self.settings
            settings = _as_far_as_possible(before, wanted)
            if not settings.auth.has_keys and settings.server.host not in LOOPBACK_HOSTS:
                raise ConfigError(
                    "Invalid configuration: auth.keys is empty while other machines can reach the service"
                )
            if settings.auth.issuers and not settings.server.public_url:
                raise ConfigError(
                    "Invalid configuration: auth.issuers needs server.public_url, which takes effect after a restart"
                )
            waiting = tuple(_waiting(before, wanted))
            changes = await self._exchange(settings, waiting)
            self.waiting, self.switched = waiting, {}
        _log_changes(before, settings, changes)
        return changes

    async def switch(self, name: str, *, enabled: bool) -> bool:
        """Enables or disables the configured upstream *name* until the configuration is read again. Returns false if
        it was so already. Raises KeyError and ConfigError."""
        async with self._one_at_a_time:
            before = self._configured(name)
            if before.enabled == enabled:
                return False
            await self._exchange(_with_upstream(self.settings, before.model_copy(update={"enabled": enabled})))
            # Switched back, it is as it is configured again.
            if self.switched.get(name) is None:
                self.switched = {**self.switched, name: enabled}
            else:
                self.switched = {other: value for other, value in self.switched.items() if other != name}
        log.warning("upstream %s: %s by an operator, until the next reload", name, "enabled" if enabled else "disabled")
        return True

    async def renew(self, name: str) -> bool:
        """Gives the configured upstream *name* a new session; calls under way may end in the old one. Returns false if
        it is disabled. Raises KeyError and ConfigError."""
        async with self._one_at_a_time:
            if not self._configured(name).enabled:
                return False
            await self._exchange(self.settings, renewed=(name,))
        log.info("upstream %s: reconnected by an operator", name)
        return True

    async def read_pins(self) -> None:
        """Reads the lock file of pins again, and puts it in force. Raises ConfigError; then nothing has changed."""
        async with self._one_at_a_time:
            await self._exchange(self.settings)

    def _configured(self, name: str) -> UpstreamSettings:
        found = next((upstream for upstream in self.settings.upstreams if upstream.name == name), None)
        if found is None:
            raise KeyError(name)
        return found

    async def _exchange(
        self, settings: Settings, waiting: tuple[str, ...] = (), renewed: Collection[str] = ()
    ) -> Changes:
        """Raises ConfigError; then nothing has changed."""
        # All that can fail comes first.
        before = self.settings
        members, changes = await self._plan(before, settings, waiting, renewed)
        # In a thread, because it reads the lock file: the accepted pins are there, not in the settings.
        policies = await asyncio.to_thread(runtime_policies, settings)

        def step() -> None:
            for each in self._steps:
                each(settings)
            for upstream in settings.upstreams:
                if upstream.name in changes.adjusted:
                    self._fleet.members[upstream.name].limit(upstream_limits(upstream))
            self._lifecycle.adopt_members(before.server.drain_s)
            self.settings = settings

        try:
            await self._runtime.rearrange(members, policies, step, rights_changed=_rights_changed(before, settings))
        except CatalogError as error:
            raise ConfigError(f"Invalid configuration: upstreams: {error}") from None
        return changes

    async def _plan(
        self, before: Settings, after: Settings, waiting: tuple[str, ...], renewed: Collection[str]
    ) -> tuple[list[Member], Changes]:
        """Returns the members to be. An upstream whose session can stay keeps its member, unless it is *renewed*."""
        was = {upstream.name: upstream for upstream in before.upstreams if upstream.enabled}
        wanted = {upstream.name: upstream for upstream in after.upstreams if upstream.enabled}
        # A member of no configuration was passed in when the gate was made; it stays.
        members = [member for name, member in self._fleet.members.items() if name not in was and name not in wanted]
        added, changed, adjusted = list[str](), list[str](), list[str]()
        for number, (name, upstream) in enumerate(wanted.items()):
            if number % AT_ONCE == 0:
                await asyncio.sleep(0)  # a configuration may name hundreds
            there = was.get(name)
            if there is not None and there.same_session(upstream) and name not in renewed:
                members.append(self._fleet.members[name])
                if there != upstream:
                    adjusted.append(name)
            else:
                members.append(self._make(upstream))
                (added if there is None else changed).append(name)
        removed = tuple(name for name in was if name not in wanted)
        return members, Changes(tuple(added), removed, tuple(changed), tuple(adjusted), waiting)


def _as_far_as_possible(before: Settings, wanted: Settings) -> Settings:
    live = {name: getattr(wanted, name) for name in _LIVE_SECTIONS}
    server = before.server.model_copy(update={"log_level": wanted.server.log_level})
    return before.model_copy(update={**live, "server": server})


def _with_upstream(settings: Settings, upstream: UpstreamSettings) -> Settings:
    others = (upstream if each.name == upstream.name else each for each in settings.upstreams)
    return settings.model_copy(update={"upstreams": tuple(others)})


def changed_sections(before: Settings, after: Settings) -> list[str]:
    """Returns the names of the sections that differ, without values."""
    fields = (name for name, field in Settings.model_fields.items() if not field.exclude)
    return [name for name in fields if getattr(before, name) != getattr(after, name)]


def _rights_changed(before: Settings, after: Settings) -> bool:
    """True if a key or an issuer that stays gives different permissions or roles now, or a different actor."""
    had = {key.sha256: (key.actor, key.permissions, key.roles) for key in before.auth.keys}
    has = {key.sha256: (key.actor, key.permissions, key.roles) for key in after.auth.keys}
    return before.auth.issuers != after.auth.issuers or any(has[key] != had[key] for key in has.keys() & had.keys())


def _waiting(before: Settings, wanted: Settings) -> Iterator[str]:
    """Yields the names of settings that differ and need a restart: ``server.port``."""
    for section in type(before).model_fields:
        old, new = getattr(before, section), getattr(wanted, section)
        if section in _LIVE or old == new:
            continue
        if not isinstance(old, BaseModel):
            yield section
            continue
        for key in type(old).model_fields:
            name = f"{section}.{key}"
            if name not in _LIVE and getattr(old, key) != getattr(new, key):
                yield name


def described(before: Settings, after: Settings, changes: Changes) -> str:
    """Describes what differs by section, without values, and upstreams by name: ``access; upstreams: shop added``."""
    kinds = ("added", "removed", "changed", "adjusted")
    upstreams = ", ".join(f"{', '.join(names)} {kind}" for kind in kinds if (names := getattr(changes, kind)))
    sections = changed_sections(before, after)
    named = [f"{name}: {upstreams}" if name == "upstreams" and upstreams else name for name in sections]
    return "; ".join(named) or "variables"


def _log_changes(before: Settings, after: Settings, changes: Changes) -> None:
    if after == before:
        log.info("configuration read again: nothing has changed that can be applied")
    else:
        log.info("configuration applied: %s", described(before, after, changes))
    if changes.waiting:
        log.warning("configuration: these take effect after a restart: %s", ", ".join(changes.waiting))


class Reloader:
    """*load* reads and checks the whole configuration, in a thread; *apply* puts it in force.

    A mistake is one line in the log, and the configuration in force stays; *unreadable* is called where *load* finds
    it. Changes of the file *watched* count from the
    making of this object on.
    """

    def __init__(
        self,
        load: Callable[[], Settings],
        apply: Callable[[Settings], Awaitable[object]],
        *,
        ready: Callable[[], Awaitable[object]],
        watched: Path | None = None,
        unreadable: Callable[[], None] = lambda: None,
    ) -> None:
        self._load = load
        self._unreadable = unreadable
        self._apply = apply
        self._ready = ready
        self._watched = watched
        self._as_read = _look(watched) if watched is not None else None
        self._wanted = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()

    async def settled(self) -> None:
        """Waits until all that was requested has been put in force or refused."""
        await self._idle.wait()

    def request(self) -> None:
        """Asks for a reload and returns at once. Only for the event loop's thread. Requests that come together count as
        one."""
        self._idle.clear()
        self._wanted.set()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Reloads while the context is open."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._serve)
            if self._watched is not None:
                tasks.start_soon(self._watch, self._watched)
            yield
            tasks.cancel_scope.cancel()

    async def _serve(self) -> None:
        await self._ready()
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            try:
                await self._apply(await self._read())
            except ConfigError as error:
                log.error(
                    "configuration not applied, the previous one stays in force: %s", "; ".join(str(error).splitlines())
                )
            except Exception:
                log.exception("configuration not applied, the previous one stays in force")
            if not self._wanted.is_set():
                self._idle.set()

    async def _read(self) -> Settings:
        try:
            return await asyncio.to_thread(self._load)
        except Exception:
            self._unreadable()
            raise

    async def _watch(self, file: Path) -> None:
        """Requests a reload when the file has changed and has stayed the same for one look.

        A look is one system call. Unlike notifications it works on every file system, for links, and for files that are
        replaced.
        """
        applied = seen = self._as_read
        while True:
            await asyncio.sleep(_LOOK_EVERY_S)
            now = await asyncio.to_thread(_look, file)
            if now == seen and now != applied and now is not None:
                applied = now
                self.request()
            seen = now


def _look(file: Path) -> tuple[int, int, int] | None:
    """Returns a value that differs after each change of the file; None while there is no file."""
    try:
        found = file.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
