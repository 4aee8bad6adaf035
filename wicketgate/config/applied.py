"""The configuration in force, and how another one takes its place while we serve (gatekit G126 to G129).

It is applied as one step or not at all. Upstreams, their policies, quotas, access rules, pins, keys and the log level
follow; for anything else the log says that it waits for a restart, and the rest is applied.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from pydantic import BaseModel

from wicketgate.config.arrangement import runtime_policies, upstream_limits
from wicketgate.config.settings import LOOPBACK_HOSTS, Settings, UpstreamSettings
from wicketgate.errors import CatalogError, ConfigError
from wicketgate.fleet.member import Member, MultiplexUpstream
from wicketgate.gateway.lifecycle import Lifecycle
from wicketgate.gateway.runtime import ProxyRuntime

log = logging.getLogger("wicketgate.configuration")

_LIVE_SECTIONS = ("upstreams", "quota", "access", "auth", "pins", "from_variables")
_LIVE = {*_LIVE_SECTIONS, "server.log_level"}

MakeMember = Callable[[UpstreamSettings], Member]


@dataclass(frozen=True, slots=True)
class Changes:
    """Names of upstreams; a *changed* one has a new session, an *adjusted* one keeps its own. *waiting*: settings that
    take effect after a restart."""

    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    adjusted: tuple[str, ...] = ()
    waiting: tuple[str, ...] = ()


class Applied:
    """*settings* are those in force: what waits for a restart is still as it was."""

    def __init__(
        self,
        settings: Settings,
        runtime: ProxyRuntime,
        fleet: MultiplexUpstream,
        lifecycle: Lifecycle,
        make: MakeMember,
    ) -> None:
        self.settings = settings
        self._runtime = runtime
        self._fleet = fleet
        self._lifecycle = lifecycle
        self._make = make
        self._followers: list[Callable[[Settings], None]] = []

    def follow(self, step: Callable[[Settings], None]) -> None:
        """Call *step* within each application; it must neither wait nor fail."""
        self._followers.append(step)

    async def apply(self, wanted: Settings) -> Changes:
        """Put *wanted* in force, as far as it can be. One at a time. Raises ConfigError; then nothing has changed."""
        before = self.settings
        settings = _as_far_as_possible(before, wanted)
        if not settings.auth.keys and settings.server.host not in LOOPBACK_HOSTS:
            raise ConfigError("Invalid configuration: auth.keys is empty while other machines can reach the service")
        members, changes = self._plan(before, settings, tuple(_waiting(before, wanted)))
        # In a thread, because it reads the file of pins: what was accepted meanwhile is there, not in the settings.
        policies = await asyncio.to_thread(runtime_policies, settings)

        def step() -> None:
            for follower in self._followers:
                follower(settings)
            for upstream in settings.upstreams:
                if upstream.name in changes.adjusted:
                    self._fleet.members[upstream.name].limit(upstream_limits(upstream))
            self._lifecycle.adopt_members(before.server.drain_s)
            self.settings = settings

        try:
            await self._runtime.rearrange(members, policies, step, rights_changed=_rights_changed(before, settings))
        except CatalogError as error:
            raise ConfigError(f"Invalid configuration: upstreams: {error}") from None
        _tell(changes, same=settings == before)
        return changes

    def _plan(self, before: Settings, after: Settings, waiting: tuple[str, ...]) -> tuple[list[Member], Changes]:
        """The members to be; those that can be kept are the same ones as before."""
        was = {upstream.name: upstream for upstream in before.upstreams if upstream.enabled}
        wanted = {upstream.name: upstream for upstream in after.upstreams if upstream.enabled}
        # Whatever is there and is not of the configuration was given to the application by its maker, and stays.
        members = [member for name, member in self._fleet.members.items() if name not in was and name not in wanted]
        added, changed, adjusted = list[str](), list[str](), list[str]()
        for name, upstream in wanted.items():
            there = was.get(name)
            if there is not None and there.same_session(upstream):
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


def _rights_changed(before: Settings, after: Settings) -> bool:
    """Whether a key that stays has other permissions now, or another actor."""
    had = {key.sha256: (key.actor, key.permissions) for key in before.auth.keys}
    has = {key.sha256: (key.actor, key.permissions) for key in after.auth.keys}
    return any(has[key] != had[key] for key in has.keys() & had.keys())


def _waiting(before: Settings, wanted: Settings) -> Iterator[str]:
    """Settings that differ and cannot follow, by name: ``server.port``."""
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


def _tell(changes: Changes, *, same: bool) -> None:
    parts = [
        f"{what} {', '.join(names)}"
        for what, names in (
            ("added", changes.added),
            ("removed", changes.removed),
            ("changed", changes.changed),
            ("adjusted", changes.adjusted),
        )
        if names
    ]
    if same:
        log.info("configuration read again: nothing has changed that can follow")
    else:
        log.info("configuration applied: upstreams: %s", "; ".join(parts) or "all as they were")
    if changes.waiting:
        log.warning("configuration: these take effect after a restart: %s", ", ".join(changes.waiting))
