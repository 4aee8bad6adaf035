"""Decides which connections the port keeps: a bound in all, one for each client address, and a reserve for health
(OPS-30 to OPS-32).

A newcomer that finds no room gets that of a connection without a request under way. It is taken from the address that
holds most, and there from the connection that has been idle longest. Where none may give way, the newcomer stands in
the reserve: it is answered on the paths of health only, and the oldest of the reserve gives way to the next.
"""

from collections import Counter, OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from ipaddress import IPv6Address, ip_address
from typing import NamedTuple

from wicketgate.net.addresses import unmapped

MAX_CONNECTIONS = 10_000
"""The most that are kept by default, however many files the process may open."""

_MAX_RESERVE = 64
_MIN_RESERVE = 8
_OWN_FILES = 32
_IPV6_HOST_BITS = 64


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """*trusts* returns True for the address of a trusted proxy: the bound for one address does not hold for it."""

    most: int
    most_per_address: int
    reserve: int
    trusts: Callable[[str], bool] = lambda address: False


def connection_limits(most: int | None, files: int, trusts: Callable[[str], bool]) -> ConnectionLimits:
    """Returns the limits for a process that may open *files* files.

    By default half of the files are for connections, at most MAX_CONNECTIONS: the request on each may need a connection
    to a model or a tool server. One address may have three quarters of them. An eighth of the files, at most 64, is the
    reserve. A configured *most* holds as far as the files suffice.
    """
    reserve = min(max(files // 8, _MIN_RESERVE), _MAX_RESERVE)
    possible = max(files - reserve - _OWN_FILES, 1)
    most = min(max(files // 2, 1), MAX_CONNECTIONS, possible) if most is None else min(most, possible)
    return ConnectionLimits(most, max(most * 3 // 4, 1), reserve, trusts)


@dataclass(slots=True)
class ConnectionCounts:
    """For the metrics. *refused* counts connections that were not served, *cut* those that were closed on a client."""

    open: int = 0
    refused: Counter[str] = field(default_factory=lambda: Counter(dict.fromkeys(("all", "address", "unanswered"), 0)))
    cut: Counter[str] = field(default_factory=lambda: Counter(dict.fromkeys(("gave_way", "head", "reader"), 0)))
    out_of_files: int = 0


class _Source(NamedTuple):
    """The origin of connections: an IPv4 address, an IPv6 network of one site, or nothing for a Unix socket."""

    net: str
    trusted: bool


@dataclass(slots=True, eq=False, repr=False)
class Seat:
    """One connection. *reserved*: it stands in the reserve. *gone*: it is closed, or gave way."""

    source: _Source
    give_way: Callable[[], None]
    reserved: bool = False
    gone: bool = False


class Connections:
    """The open connections. *give_way* of a seat closes its connection, and must not call back at once."""

    def __init__(self, limits: ConnectionLimits, counts: ConnectionCounts) -> None:
        self.counts = counts
        self._limits = limits
        self._places = 0
        self._held: Counter[_Source] = Counter()
        # The first has been idle longest.
        self._idle: dict[_Source, OrderedDict[Seat, None]] = {}
        self._reserve: OrderedDict[Seat, None] = OrderedDict()

    def enter(self, address: str, give_way: Callable[[], None]) -> Seat:
        """Takes a new connection in. It is idle until ``busy`` is called."""
        seat = Seat(self._source(address), give_way)
        if self._bound_over(seat.source) is None:
            self._take_place(seat)
        else:
            self._take_reserve(seat)
        return seat

    def promote(self, seat: Seat) -> str | None:
        """Gives a seat of the reserve a place, if there is room now. Returns the bound that it is over, or None."""
        if not seat.reserved or seat.gone:
            return None
        bound = self._bound_over(seat.source)
        if bound is None:
            del self._reserve[seat]
            seat.reserved = False
            self._take_place(seat)
        return bound

    def busy(self, seat: Seat) -> None:
        """A request is under way."""
        if seats := self._idle.get(seat.source):
            seats.pop(seat, None)
            if not seats:
                del self._idle[seat.source]

    def idle(self, seat: Seat) -> None:
        """No request is under way: the connection may give way."""
        if not seat.reserved and not seat.gone:
            self._idle.setdefault(seat.source, OrderedDict())[seat] = None

    def leave(self, seat: Seat) -> None:
        """The connection is closed."""
        if seat.gone:
            return
        seat.gone = True
        if seat.reserved:
            del self._reserve[seat]
        else:
            self.busy(seat)
            self._places -= 1
            self._held[seat.source] -= 1
            if not self._held[seat.source]:
                del self._held[seat.source]
        self._count()

    def shed(self) -> None:
        """Closes one idle connection, if there is any: files ran out."""
        if self._idle:
            self._close_idle(max(self._idle, key=self._held.__getitem__))

    def _source(self, address: str) -> _Source:
        trusted = self._limits.trusts(address)
        try:
            ip = unmapped(ip_address(address))
        except ValueError:
            return _Source(address, trusted)
        if isinstance(ip, IPv6Address) and not trusted:
            # One client has a network of addresses, and may take a new one for each connection.
            return _Source(str(int(ip) >> _IPV6_HOST_BITS), False)
        return _Source(str(ip), trusted)

    def _bound_over(self, source: _Source) -> str | None:
        """Makes room if that is possible. Returns the bound that a newcomer from *source* is over, or None."""
        held = self._held.get(source, 0)
        if not source.trusted and held >= self._limits.most_per_address:
            return None if self._close_idle(source) else "address"
        if self._places < self._limits.most:
            return None
        # A proxy's connections carry many clients, so they give way to that proxy only.
        givers = [each for each in self._idle if each == source or not each.trusted]
        giver = max(givers, key=self._held.__getitem__, default=None)
        if giver is None or self._held[giver] < held:
            return "all"
        return None if self._close_idle(giver) else "all"

    def _close_idle(self, source: _Source) -> bool:
        seats = self._idle.get(source)
        if not seats:
            return False
        seat = next(iter(seats))
        self.leave(seat)
        self.counts.cut["gave_way"] += 1
        seat.give_way()
        return True

    def _take_place(self, seat: Seat) -> None:
        self._places += 1
        self._held[seat.source] += 1
        self.idle(seat)
        self._count()

    def _take_reserve(self, seat: Seat) -> None:
        if len(self._reserve) >= self._limits.reserve:
            crowds = Counter(each.source for each in self._reserve)
            largest = max(crowds.values())
            oldest = next(each for each in self._reserve if crowds[each.source] == largest)
            self.leave(oldest)
            self.counts.refused["unanswered"] += 1
            oldest.give_way()
        seat.reserved = True
        self._reserve[seat] = None
        self._count()

    def _count(self) -> None:
        self.counts.open = self._places + len(self._reserve)
