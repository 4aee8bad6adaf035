"""The other processes of one service, workers and replicas, as one of them reaches them (OPS-197).

Each process has an id for its life. It stands inside what clients carry between two requests (sealed states, ids of
tasks and sessions, handles of calls), so a request that belongs to another process finds it without a look-up.
"""

import asyncio
import logging
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, MutableMapping
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any, Protocol

log = logging.getLogger("wicketgate.peers")

AsgiMessage = MutableMapping[str, Any]
AsgiScope = MutableMapping[str, Any]
AsgiReceive = Callable[[], Awaitable[AsgiMessage]]
AsgiSend = Callable[[AsgiMessage], Awaitable[None]]
AsgiApp = Callable[[AsgiScope, AsgiReceive, AsgiSend], Awaitable[None]]

Payload = Mapping[str, Any]
"""A value that MessagePack carries: texts, bytes, numbers, lists and mappings."""

Answer = Callable[[Payload], Awaitable[Payload]]
"""Answers one operation. What it raises is logged, and the asker gets NotReached."""

ASK_S = 5.0
MAX_BYTES = 64 * 1024 * 1024
"""The largest message: a result of a tool may stand in it."""


class NotReached(Exception):
    """A peer has not answered. *gone*: its process has ended, for sure. Otherwise it cannot be reached at the moment,
    or did not answer in time, and may have done what it was asked."""

    def __init__(self, *, gone: bool = False) -> None:
        super().__init__("the process has ended" if gone else "the process cannot be reached at the moment")
        self.gone = gone


@dataclass(frozen=True, slots=True)
class Others:
    """The ids of the other processes that are *there*. *unseen*: the number of those that are there, for all that is
    known, and did not give their ids."""

    there: tuple[str, ...] = ()
    unseen: int = 0


class Peers(Protocol):
    """The ways from this process to the others of its service, and from them to it."""

    @property
    def own_id(self) -> str:
        """The id of this process: letters, digits and ``-``, 40 characters at most. Never used again."""
        ...

    async def alive(self, peer: str) -> bool:
        """Return false if the process has ended, or there never was one. Raises NotReached where that cannot be
        known at the moment."""
        ...

    async def others(self) -> Others:
        """The other processes of the service. Raises NotReached where they cannot be known at the moment."""
        ...

    async def ask(self, peer: str, operation: str, payload: Payload, timeout_s: float = ASK_S) -> Payload:
        """The answer of *peer*, this process included. It is asked once. Raises NotReached: within two seconds for a
        peer that takes no requests, after *timeout_s* for one that does not answer, and then it is cancelled there."""
        ...

    async def forward(self, peer: str, scope: AsgiScope, receive: AsgiReceive, send: AsgiSend) -> None:
        """Let *peer* answer an HTTP request, as the application of ``answer_with`` there. It gets the client's own
        headers, and authenticates it anew. The correlation id goes along.

        Raises NotReached before anything is taken from *receive*; nothing has run then. Of a process that ends later
        the client gets 502, because it may have run, or an answer that is broken off (ConnectionError).
        """
        ...

    def answer(self, operation: str, answer: Answer, *, outlives: bool = False) -> None:
        """Answer what peers ask under this name. To be called before ``answering``. *outlives*: the answer is worked
        out to its end for an asker that is lost; one that leaves ends it."""
        ...

    def answer_with(self, app: AsgiApp) -> None:
        """Let *app* answer what peers forward. To be called before ``answering``."""
        ...

    def answering(self) -> AbstractAsyncContextManager[None]:
        """Take requests of peers while the context is open."""
        ...


class PeerAnswers:
    """The answers of this process, by the name of the operation."""

    def __init__(self) -> None:
        self.app: AsgiApp | None = None
        self._answers: dict[str, Answer] = {}
        self._outliving = set[str]()

    def answer(self, operation: str, answer: Answer, *, outlives: bool = False) -> None:
        self._answers[operation] = answer
        if outlives:
            self._outliving.add(operation)

    def answer_with(self, app: AsgiApp) -> None:
        self.app = app

    async def of(self, operation: str, payload: Payload) -> Payload:
        """The answer to *operation*. Raises NotReached where there is none: this process may be of an older release."""
        if (answer := self._answers.get(operation)) is None:
            raise NotReached
        try:
            return await answer(payload)
        except NotReached:
            raise
        except Exception:
            log.exception("%s: a peer was not answered", operation)
            raise NotReached from None


@dataclass(frozen=True, slots=True)
class Answers:
    """The answers of the others, by their ids. *unreached*: the number of those that did not, one where not even their
    number is known."""

    given: Mapping[str, Payload] = field(default_factory=dict)
    unreached: int = 0


async def ask_others(peers: Peers, operation: str, payload: Payload, timeout_s: float = ASK_S) -> Answers:
    """Asks all other processes at once. One that ends meanwhile counts as none. Never raises NotReached."""
    try:
        others = await peers.others()
    except NotReached:
        return Answers(unreached=1)
    given = dict[str, Payload]()
    unreached = others.unseen

    async def ask(peer: str) -> None:
        nonlocal unreached
        try:
            given[peer] = await peers.ask(peer, operation, payload, timeout_s)
        except NotReached as error:
            unreached += not error.gone

    await asyncio.gather(*(ask(peer) for peer in others.there))
    return Answers(given, unreached)


def new_peer_id() -> str:
    return secrets.token_hex(8)


class Marks(Protocol):
    """Marks of processes that share a store without reaching each other."""

    ending: str
    """What the id of this process ends with, so that others find its mark."""

    def held(self, id: str) -> AbstractContextManager[None]:
        """Marks this process as alive within the block."""
        ...

    def ended(self, id: str) -> bool:
        """Returns true only if the process *id* is known to have ended."""
        ...


class Unmarked:
    """Implements Marks for a process that shares nothing: every other id is that of a process that has ended."""

    ending = ""

    def held(self, id: str) -> AbstractContextManager[None]:
        return nullcontext()

    def ended(self, id: str) -> bool:
        return True


class Alone(PeerAnswers):
    """Implements Peers for a process that reaches no others. *marks* show which of them have ended."""

    def __init__(self, marks: Marks | None = None) -> None:
        super().__init__()
        self._marks = marks or Unmarked()
        self.own_id = new_peer_id() + self._marks.ending

    async def alive(self, peer: str) -> bool:
        if peer != self.own_id and not self._marks.ended(peer):
            raise NotReached
        return peer == self.own_id

    async def others(self) -> Others:
        return Others()

    async def ask(self, peer: str, operation: str, payload: Payload, timeout_s: float = ASK_S) -> Payload:
        if peer != self.own_id:
            raise NotReached(gone=self._marks.ended(peer))
        return await self.of(operation, payload)

    async def forward(self, peer: str, scope: AsgiScope, receive: AsgiReceive, send: AsgiSend) -> None:
        if peer != self.own_id or self.app is None:
            raise NotReached(gone=peer != self.own_id and self._marks.ended(peer))
        await self.app(scope, receive, send)

    @asynccontextmanager
    async def answering(self) -> AsyncIterator[None]:
        with self._marks.held(self.own_id):
            yield
