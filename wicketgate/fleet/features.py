"""Offers of tool servers besides tools: resources, templates, prompts, completions, skills (ROUTE-11).

The port, and the fleet of many servers as one (ROUTE-9): each is asked by itself and fails alone. Lists are kept until
their server says that they changed, or for half a minute, so that clients which list all day cost the servers nothing.
Bounds on a server: the number of items, the bytes of an item's address, and the time that a client waits for it; its
slots are those of ``Member``.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal, Protocol, runtime_checkable

from wicketgate.access.identity import Identity
from wicketgate.access.shares import full_scope
from wicketgate.catalog.skills import DIRECTORIES, SKILLS
from wicketgate.errors import GatewayError, RateLimited, UpstreamTimeout, UpstreamUnavailable
from wicketgate.log_text import MASK
from wicketgate.login.user_credentials import GrantName
from wicketgate.ports import CallContext, PerUser
from wicketgate.task_end import cancel_all

FeatureKind = Literal["resources", "templates", "prompts", "skills"]

ADDRESS: Mapping[FeatureKind, str] = {
    "resources": "uri",
    "templates": "uriTemplate",
    "prompts": "name",
    "skills": "uri",
}
"""The field by which an item of each kind is asked for."""


@dataclass(frozen=True, slots=True)
class FeatureSupport:
    """The features that one server declared when it was connected; *instructions* are its own words for a model, and
    *extensions* those of the protocol that it declared, by name."""

    resources: bool = False
    prompts: bool = False
    completions: bool = False
    subscriptions: bool = False
    instructions: str = ""
    extensions: Mapping[str, Any] = field(default_factory=dict)

    @property
    def skills(self) -> bool:
        return SKILLS in self.extensions

    @property
    def directories(self) -> bool:
        """True if it lists directories too (``resources/directory/read``)."""
        settings = self.extensions.get(SKILLS)
        return isinstance(settings, Mapping) and settings.get(DIRECTORIES) is True

    def has(self, kind: FeatureKind) -> bool:
        if kind == "skills":
            return self.skills
        return self.prompts if kind == "prompts" else self.resources


@dataclass(frozen=True, slots=True)
class ListChanged:
    """*kind* ``resources`` stands for templates and skills too. *actor* is the one whose account it is about; None: it
    is for everybody."""

    kind: Literal["resources", "prompts"]
    actor: str | None = None


@dataclass(frozen=True, slots=True)
class ResourceChanged:
    """*actor* as in ListChanged."""

    uri: str
    actor: str | None = None


FeatureChange = ListChanged | ResourceChanged


@dataclass(frozen=True, slots=True)
class FeatureList:
    """*fresh_ms*: for how many milliseconds the list is good, by its server; 0 if it did not say."""

    items: Sequence[Any]
    fresh_ms: int = 0


class Features(Protocol):
    """The features of one tool server, under its own names."""

    @property
    def support(self) -> FeatureSupport | None:
        """None while it is not connected."""
        ...

    @property
    def accounts(self) -> PerUser | None:
        """The upstream whose accounts have different lists; None if the lists are the same for all callers."""
        ...

    async def list_all(self, kind: FeatureKind, account: GrantName | None = None) -> FeatureList:
        """Returns all items of all pages, unchanged; none if the server has no such list after all. If lists differ by
        account, returns that of *account*, and without one no items.

        Raises UpstreamUnavailable, UpstreamTimeout or UpstreamError.
        """
        ...

    async def request(
        self, method: str, params: Mapping[str, Any], context: CallContext, timeout_s: float
    ) -> Mapping[str, Any]:
        """``resources/read``, ``prompts/get``, ``completion/complete``, ``skills/get`` or ``resources/directory/read``;
        the result as wire JSON. Raises as ``Upstream.call_tool``."""
        ...

    def follow(self, uris: frozenset[str], actor: str = "") -> None:
        """Hear of changes of these resources from now on, and of no others; also after a reconnection. Where changes
        differ by account, in the sessions of *actor*, which stay open in the meantime."""
        ...

    def watch(self, heard: Callable[[FeatureChange], None]) -> None:
        """Call *heard* on the event loop whenever something changed; also after each connection."""
        ...


@runtime_checkable
class HasFeatures(Protocol):
    """An upstream that may have more than tools."""

    @property
    def features(self) -> Features: ...


log = logging.getLogger("wicketgate.features")

FRESH_S = 30.0
PATIENCE_S = 3.0
"""A client that wants the lists of all waits so long for one server's. The reading goes on, for the next client."""
_MAX_FRESH_MS = 60_000
_MAX_ITEMS = 10_000
_MAX_ADDRESS_CHARS = 8_192
_MAX_FOLLOWED = 1_000

_MAX_LISTS = 2_000
"""Lists that are kept. Those of accounts come and go."""

Item = Mapping[str, Any]
Heard = Callable[[str, FeatureChange], None]


@dataclass(frozen=True, slots=True)
class _Kept:
    """One list, read or being read. *began* is on the clock of the fleet."""

    began: float
    task: "asyncio.Task[FeatureList]"


Key = tuple[str, FeatureKind, GrantName | None]
"""Whose list: the server's, its kind, and the account whose it is, if it is not everybody's."""


@dataclass(frozen=True, slots=True)
class FeatureListing:
    """Items by server, and by server why its items are missing. *fresh_ms*: how long all of it is good for; 0 where
    something is missing."""

    items: Mapping[str, Sequence[Item]]
    missing: Mapping[str, str]
    fresh_ms: int = 0


class FeatureFleet:
    """*servers* gives those of the moment that may have features, by name; *now* is a clock in seconds."""

    def __init__(
        self,
        servers: Callable[[], Mapping[str, Features]],
        now: Callable[[], float],
        *,
        timeout_s: float,
        patience_s: float = PATIENCE_S,
    ) -> None:
        self._servers = servers
        self._now = now
        self._timeout_s = timeout_s
        self._patience_s = patience_s
        self._known: dict[str, Features] = {}
        self._listed: dict[Key, _Kept] = {}
        self._reading: set[asyncio.Task[FeatureList]] = set()
        # By server and actor.
        self._followed: dict[str, dict[str, Counter[str]]] = {}
        self._watchers: list[Heard] = []

    async def aclose(self) -> None:
        """End the listings that are being read; those who wait for one get UpstreamUnavailable."""
        await cancel_all(self._reading)

    def watch(self, heard: Heard) -> None:
        """Call *heard* with a server's name on each change."""
        self._watchers.append(heard)

    def attend(self) -> None:
        """Hear of changes of servers that are new since the last time."""
        servers = self._servers()
        for name, features in servers.items():
            if self._known.get(name) is not features:
                self.forget(name)
                features.watch(partial(self._changed, name, features))
                if features.accounts is None:
                    features.follow(self._all_followed(name))
                else:
                    for actor, uris in self._followed.get(name, {}).items():
                        features.follow(frozenset(uris), actor)
        self._known = dict(servers)

    def support(self) -> dict[str, FeatureSupport | None]:
        self.attend()
        return {name: features.support for name, features in self._known.items()}

    async def list_all(
        self, kind: FeatureKind, servers: Collection[str], identity: Identity | None = None
    ) -> FeatureListing:
        """From those of *servers* that have such a list; one without it is missing nothing (ROUTE-10). Of one whose
        lists differ by account those of *identity*; without an account, and for nobody, they are missing."""
        support = self.support()
        asked = [name for name in servers if name in support and ((s := support[name]) is None or s.has(kind))]
        answers = await asyncio.gather(*(self._list_one(name, kind, identity) for name in asked))
        items: dict[str, Sequence[Item]] = {}
        missing: dict[str, str] = {}
        fresh_ms: list[int] = []
        for name, answer in zip(asked, answers, strict=True):
            if isinstance(answer, GatewayError):
                missing[name] = answer.message
            else:
                items[name] = answer.items
                fresh_ms.append(answer.fresh_ms)
        return FeatureListing(items, missing, 0 if missing else min(fresh_ms, default=0))

    async def request(
        self, server: str, method: str, params: Mapping[str, Any], context: CallContext
    ) -> Mapping[str, Any]:
        """As ``Features.request``."""
        self.attend()
        features = self._known.get(server)
        if features is None:
            raise UpstreamUnavailable(f"{server} offers nothing of this kind.")
        return await features.request(method, params, context, self._timeout_s)

    def forget(self, server: str) -> None:
        """Read the lists of *server* again when they are asked for next."""
        for key in [key for key in self._listed if key[0] == server]:
            del self._listed[key]

    def follow(self, server: str, uri: str, actor: str) -> None:
        """Hear of changes of a resource for *actor*, until as many ``unfollow`` as ``follow`` were called.

        The resources of a server that are followed are shared among actors. Raises RateLimited.
        """
        if len(uri) > _MAX_ADDRESS_CHARS:
            raise RateLimited(
                f"A resource with an address of more than {_MAX_ADDRESS_CHARS} characters cannot be subscribed to."
            )
        own = self._followed.setdefault(server, {}).setdefault(actor, Counter())
        if uri not in own:
            followed = self._all_followed(server)
            full = full_scope(len(own), len(followed), _MAX_FOLLOWED, None)
            if full == "actor" or (full == "all" and uri not in followed):
                whose = " by this actor" if full == "actor" else ""
                raise RateLimited(f"Too many resources of {server} are subscribed to{whose}.")
        own[uri] += 1
        if own[uri] == 1:
            self._follow_up(server, actor)

    def unfollow(self, server: str, uri: str, actor: str) -> None:
        actors = self._followed.get(server, {})
        own = actors.get(actor, Counter())
        own[uri] -= 1
        if own[uri] <= 0:
            del own[uri]
            if not own:
                actors.pop(actor, None)
            self._follow_up(server, actor)

    def _all_followed(self, server: str) -> frozenset[str]:
        return frozenset().union(*self._followed.get(server, {}).values())

    async def is_missed_by(self, server: str, identity: Identity) -> bool:
        """True where what *server* shows differs by account, and this caller has none."""
        accounts = self._accounts_at(server)
        return accounts is not None and await accounts.account_of(identity) is None

    async def attend_for(self, server: str, identity: Identity) -> None:
        """Have the session of this caller open where changes differ by account. Raises as ``PerUser.connect``."""
        accounts = self._accounts_at(server)
        if accounts is not None:
            await accounts.connect(identity)

    def _accounts_at(self, server: str) -> PerUser | None:
        self.attend()
        features = self._known.get(server)
        return None if features is None else features.accounts

    def _follow_up(self, server: str, actor: str) -> None:
        self.attend()
        features = self._known.get(server)
        if features is None:
            return
        if features.accounts is None:
            features.follow(self._all_followed(server))
        else:
            features.follow(frozenset(self._followed.get(server, {}).get(actor, ())), actor)

    async def _list_one(self, server: str, kind: FeatureKind, identity: Identity | None) -> FeatureList | GatewayError:
        """The usable items, with the rest of the time for which they are good."""
        features, account = self._known[server], None
        if features.accounts is not None:
            try:
                account = None if identity is None else await features.accounts.account_of(identity)
            except GatewayError as error:
                return error
            if account is None:
                return UpstreamUnavailable(f"{server} shows its {kind} when your own account is connected there.")
        kept = self._listed.get((server, kind, account))
        if kept is None or self._now() - kept.began > FRESH_S or _failed(kept.task):
            task = asyncio.create_task(_fetch(server, features, kind, account))
            self._reading.add(task)
            task.add_done_callback(self._read)
            self._make_room()
            kept = self._listed[server, kind, account] = _Kept(self._now(), task)
        listing = kept.task
        if not listing.done():
            # Others that wait for the same list still get it when this caller leaves.
            await asyncio.wait([listing], timeout=max(0.0, kept.began + self._patience_s - self._now()))
        if not listing.done():
            return UpstreamTimeout(f"{server} has not listed its {kind} yet.")
        if listing.cancelled():
            return UpstreamUnavailable(f"{server} is being closed; its {kind} were not listed.")
        try:
            found = listing.result()
        except GatewayError as error:
            return error
        age_ms = (self._now() - kept.began) * 1_000
        return FeatureList(found.items, max(0, int(min(found.fresh_ms, _MAX_FRESH_MS) - age_ms)))

    def _make_room(self) -> None:
        if len(self._listed) >= _MAX_LISTS:
            for key in [key for key, kept in self._listed.items() if self._now() - kept.began > FRESH_S]:
                del self._listed[key]
        if len(self._listed) >= _MAX_LISTS:
            del self._listed[next(iter(self._listed))]

    def _read(self, task: "asyncio.Task[FeatureList]") -> None:
        self._reading.discard(task)
        _failed(task)  # looked at, even if all who waited have left

    def _changed(self, server: str, features: Features, change: FeatureChange) -> None:
        if self._known.get(server) is not features:
            return  # one that was replaced speaks no more
        if isinstance(change, ListChanged):
            self.forget(server)
        for heard in self._watchers:
            heard(server, change)


async def _fetch(server: str, features: Features, kind: FeatureKind, account: GrantName | None) -> FeatureList:
    given = await features.list_all(kind, account)
    address = ADDRESS[kind]
    items = [item for item in given.items if isinstance(item, Mapping) and _usable(item.get(address))]
    if len(items) < len(given.items):
        log.warning("%s: %d of its %s have no usable %s", server, len(given.items) - len(items), kind, address)
    if len(items) > _MAX_ITEMS:
        log.warning("%s: it lists %d %s, of which %d are shown", server, len(items), kind, _MAX_ITEMS)
    return FeatureList(items[:_MAX_ITEMS], given.fresh_ms)


def _failed(task: "asyncio.Task[FeatureList]") -> bool:
    return task.done() and (task.cancelled() or task.exception() is not None)


def _usable(address: object) -> bool:
    return isinstance(address, str) and 0 < len(address) <= _MAX_ADDRESS_CHARS and MASK not in address
