"""The figures of ``bench.execute``: medians over blocks, ratios to the direct call and to mcp-proxy, goals, tables."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from bench.checkouts import Checkout, Measures, add_value
from bench.table import NONE, Table, figure, percentile, table

DIRECT = "direct"
IN_PROCESS = "in process"
GATEWAY = ("gateway 2026", "gateway handshake")
NAMESPACED = ("namespaced 2026", "namespaced handshake")
BRIDGE, FASTMCP = "mcp-proxy", "FastMCP"
OURS = (IN_PROCESS, *GATEWAY, *NAMESPACED)
PEERS = (BRIDGE, FASTMCP)
WAYS = (DIRECT, *OURS, *PEERS)
UPSTREAMS = ("stdio", "http", "handshake")
"""The last is an HTTP server that knows only the handshake era."""

JUDGED = ("100 B", 32)
"""The size and the concurrent callers of most goals."""


@dataclass(frozen=True, slots=True)
class Goal:
    """The maximum cost of a call, in *unit*, for each of *ways*."""

    upstream: str
    ways: Sequence[str]
    block: tuple[str, int]
    most: float
    unit: Literal["µs", "× direct", "× mcp-proxy"]


GOALS = (
    Goal("stdio", NAMESPACED, JUDGED, 190, "µs"),
    Goal("stdio", NAMESPACED, ("100 B", 1), 330, "µs"),
    Goal("stdio", GATEWAY, JUDGED, 270, "µs"),
    Goal("stdio", GATEWAY, ("100 B", 1), 450, "µs"),
    Goal("stdio", NAMESPACED, JUDGED, 0.2, "× mcp-proxy"),
    Goal("stdio", GATEWAY, JUDGED, 0.3, "× mcp-proxy"),
    Goal("stdio", (IN_PROCESS,), JUDGED, 1.5, "× direct"),
    Goal("http", (IN_PROCESS,), JUDGED, 0.6, "× direct"),
    Goal("http", GATEWAY, JUDGED, 1.0, "× direct"),
    Goal("http", OURS, ("1 MB", 1), 1.0, "× direct"),
    Goal("handshake", (IN_PROCESS,), JUDGED, 1.0, "× direct"),
    Goal("handshake", GATEWAY, JUDGED, 1.6, "× direct"),
)


@dataclass(frozen=True, slots=True)
class Block:
    """Calls in one go. CPU microseconds a call of the caller's process, of the gateway's if it is another, and of the
    upstream's; *wall_us* from the first to the last, a call; *latency_us* the median of one."""

    caller_us: float
    gateway_us: float
    upstream_us: float
    wall_us: float
    latency_us: float

    @property
    def ours_us(self) -> float:
        """The work of what is measured: the gateway's process, or the caller's that holds it."""
        return self.gateway_us or self.caller_us


Key = tuple[str, str, int, str]
"""Upstream, size, callers at once, way."""


@dataclass(frozen=True, slots=True)
class Row:
    """Medians over the blocks of one key. *low_us* and *high_us* are the least and the most of *ours_us*. *ratio* is
    *ours_us* over that of the direct call, and *beside* over that of mcp-proxy, if it is there: the median of the
    rounds' own ratios, because what else runs on the machine changes from round to round."""

    upstream: str
    size: str
    callers: int
    way: str
    caller_us: float
    gateway_us: float
    upstream_us: float
    latency_us: float
    calls_s: float
    ours_us: float
    low_us: float
    high_us: float
    ratio: float
    beside: float | None

    @property
    def block(self) -> tuple[str, int]:
        return self.size, self.callers

    def in_unit(self, unit: str) -> float | None:
        """Returns the cost of a call in the *unit* of a goal; None if it was not measured."""
        return {"µs": self.ours_us, "× direct": self.ratio}.get(unit, self.beside)


def calls_of_block(seconds: float, call_s: float, callers: int) -> int:
    """Number of calls that take some *seconds*, each caller two at least. *call_s* is what one took, of all callers."""
    return max(2 * callers, int(seconds / call_s) if call_s > 0 else 0)


def rows_of(blocks: Mapping[Key, Sequence[Block]]) -> list[Row]:
    """In the order of upstreams, then of the blocks; ways as they come. Each has its direct call among *blocks*."""
    sizes = list(dict.fromkeys(key[1] for key in blocks))
    rows = []
    for key in sorted(blocks, key=lambda key: (UPSTREAMS.index(key[0]), sizes.index(key[1]), key[2])):
        of = blocks[key]
        ours = [one.ours_us for one in of]
        rows.append(
            Row(
                *key,
                caller_us=_median([one.caller_us for one in of]),
                gateway_us=_median([one.gateway_us for one in of]),
                upstream_us=_median([one.upstream_us for one in of]),
                latency_us=_median([one.latency_us for one in of]),
                calls_s=1e6 / _median([one.wall_us for one in of]),
                ours_us=_median(ours),
                low_us=min(ours),
                high_us=max(ours),
                ratio=_ratio(of, blocks[(*key[:3], DIRECT)]),
                beside=_ratio(of, bridge) if (bridge := blocks.get((*key[:3], BRIDGE))) else None,
            )
        )
    return rows


def _ratio(blocks: Sequence[Block], unit: Sequence[Block]) -> float:
    return _median([one.ours_us / other.ours_us for one, other in zip(blocks, unit, strict=True)])


def _median(values: Sequence[float]) -> float:
    return percentile(values, 50) or 0.0


def ratio_tables(rows: Sequence[Row], missing: Mapping[tuple[str, str], str] | None = None) -> list[Table]:
    """One table an upstream: a line a way, a column a size and number of callers. *missing* has, by upstream and way,
    why it could not be measured."""
    tables = []
    for upstream in UPSTREAMS:
        its = [row for row in rows if row.upstream == upstream]
        columns = list(dict.fromkeys(row.block for row in its))
        cells = {(row.way, row.block): _cell(row) for row in its}
        lines = [
            [way, *(cells.get((way, column), NONE) for column in columns)]
            for way in dict.fromkeys(row.way for row in its)
        ]
        for (of, way), why in (missing or {}).items():
            if of == upstream:
                lines.append([f"{way}: {why}", *(NONE for _ in columns)])
        if its:
            head = ["CPU µs a call (× direct; × mcp-proxy)", *(f"{size}, {callers}" for size, callers in columns)]
            tables.append(Table(_TITLES[upstream], head, lines))
    return tables


_TITLES = {
    "stdio": "Upstream over stdio",
    "http": "Upstream over HTTP, 2026-07-28",
    "handshake": "Upstream over HTTP, handshake era",
}


def _cell(row: Row) -> str:
    if row.way == DIRECT:
        return figure(row.ours_us)
    return f"{figure(row.ours_us)} ({figure(row.ratio)}; {figure(row.beside)})"


def goals_table(rows: Sequence[Row], notes: Sequence[str] = ()) -> Table:
    """A line a goal, with the figures of those of its ways that were measured. Ours is ahead of a peer if its process
    costs less. *notes* come before those on rows that are behind."""
    by_key = {(row.upstream, row.block, row.way): row for row in rows}
    lines = []
    for goal in GOALS:
        its = [row for way in goal.ways if (row := by_key.get((goal.upstream, goal.block, way))) is not None]
        found = [value for row in its if (value := row.in_unit(goal.unit)) is not None]
        if found:
            size, callers = goal.block
            what = f"{goal.upstream}, {size}, {callers}: {', '.join(row.way for row in its)}"
            most = f"≤ {goal.most:g} {goal.unit}"
            lines.append([what, most, ", ".join(map(figure, found)), verdict(max(found) <= goal.most)])
    beside = [(row, row.beside) for row in rows if row.way in OURS and row.beside is not None]
    if beside:
        ahead = sum(ratio < 1 for _, ratio in beside)
        lines.append([f"ahead of {BRIDGE}", "every row", f"{ahead} of {len(beside)}", verdict(ahead == len(beside))])
    behind = [
        f"behind {BRIDGE}: {row.upstream}, {row.size}, callers: {row.callers}, {row.way}: × {figure(ratio)}"
        for row, ratio in beside
        if ratio >= 1
    ]
    return Table("Goals", ["what", "goal", "measured", ""], lines, [*notes, *behind])


def measures_of(blocks: Mapping[Key, Sequence[Block]], checkouts: Sequence[Checkout]) -> Measures:
    """Returns the costs of the faces, by checkout."""
    measures: Measures = {}
    for (upstream, size, callers, way), of in blocks.items():
        for checkout in checkouts:
            for face in (*GATEWAY, *NAMESPACED):
                if way == checkout.at(face):
                    name = f"{face}, {upstream}, {size}, {callers} callers, CPU µs"
                    add_value(measures, name, checkout, *(one.ours_us for one in of))
    return measures


def verdict(good: bool) -> str:
    return "met" if good else "**missed**"


def processes(rows: Sequence[Row]) -> str:
    """Every row with the CPU time of each process, for the terminal."""
    head = ["upstream", "callers", "", "caller", "gateway", "upstream", "whole", "ours, from", "to", "× direct"]
    return table(
        [*head, "latency ms", "calls/s"],
        [
            [
                f"{row.upstream} {row.size}",
                str(row.callers),
                row.way,
                figure(row.caller_us),
                figure(row.gateway_us or None),
                figure(row.upstream_us or None),
                figure(row.caller_us + row.gateway_us + row.upstream_us),
                figure(row.low_us),
                figure(row.high_us),
                figure(row.ratio) if row.way != DIRECT else NONE,
                figure(row.latency_us / 1e3),
                figure(row.calls_s),
            ]
            for row in rows
        ],
    )
