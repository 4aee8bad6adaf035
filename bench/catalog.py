"""``make bench-catalog``: how well tools are found, the agent's view, learning, and what refreshing and browsing cost,
with peers beside us in the same run; with ``--beside``, the costs of another checkout too.

**Routing quality.** Each set is a catalog, and each of its servers an upstream. All contestants get the same sample of
100 tasks per set (``--sample``), drawn with a fixed seed; Wicketgate also has a row for all tasks. With 100 tasks the
95 % interval of a share is about 8 points. *recall@1, recall@5*: share of the task's tools among the first one (five)
of the ranking, mean over tasks; a task with three tools can reach at most a third in recall@1. *any@5*: share of tasks
with at least one of their tools among the first five. *tools shown, tokens a browse*: size of the answer with the
contestant's defaults, in tokens of cl100k_base. *CPU ms a query*: the whole call in process, the best of three (of one,
if it takes over 50 ms), then the median.

Contestants: *wicketgate* is asked by ``tool_browse`` of the gateway face, with ``top_k: 10`` for the ranking and
without it for tokens and time. *bm25s* is BM25 over server, name (split into words) and description with English stop
words, a library without an answer text. *fastmcp* answers ``search_tools`` behind its ``BM25SearchTransform``: five
whole definitions as JSON. *contextweaver* answers ``tool_browse`` of its ``ProxyRuntime`` with its defaults: ten cards
as JSON, a beam of 3; tools whose ids it refuses are left out.
Prints Markdown, ready to be pasted there; the progress goes to stderr.
"""

import argparse
import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from bench.agents_view import agents_view, one_browse_table, ways_table
from bench.catalogs import MISSING, ROOT, corpus, routing_data
from bench.checkouts import HERE, add_beside, beside_tables
from bench.costs import PEER_TOOLS, QUERIES, SIZES, costs_table, measure, measures_of
from bench.learning import learning, learning_table
from bench.machine import machine, write
from bench.peers import OF_CATALOG, Peer, install
from bench.progress import step
from bench.quality import SAMPLE, quality, quality_table
from bench.table import Table, markdown

_COST_PEER = "contextweaver"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, default=ROOT / "bench" / "out" / "catalog.json")
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES)
    parser.add_argument("--sample", type=int, default=SAMPLE, help="tasks of a set for which the peers are asked")
    parser.add_argument("--no-peers", action="store_true", help="only this program")
    add_beside(parser)
    for section in _SECTIONS:
        parser.add_argument(f"--no-{section}", action="store_true")
    options = parser.parse_args()

    # The peers, and the sections that are wanted and can be run.
    peers = {} if options.no_peers else {name: install(name) for name in OF_CATALOG}
    remarks = [f"{name}: {why}" for name, why in peers.items() if isinstance(why, str)]
    data = routing_data()
    wanted = [section for section in _SECTIONS if not getattr(options, f"no_{section}")]
    if data is None:
        remarks.append(MISSING)
        wanted = [section for section in wanted if section not in _NEED_DATA]

    before = machine()
    result: dict[str, Any] = {"measures": {}}
    for section in wanted:
        result[section], tables = _SECTIONS[section](options, data, peers)
        for table in tables:
            print(f"\n{markdown(table)}", flush=True)
    if "costs" in result:
        result["measures"] = measures = measures_of(result["costs"], [*options.beside, HERE])
        for table in beside_tables(measures):
            print(f"\n{markdown(table)}")
    print("".join(f"\n- {told}" for told in remarks))
    write(options.json, before, result | {"remarks": remarks})


_Peers = Mapping[str, Peer | str]
_Made = tuple[Any, list[Table]]


def _quality(options: argparse.Namespace, data: Path | None, peers: _Peers) -> _Made:
    assert data is not None
    rows = list(quality(data, peers, options.sample))
    return rows, [quality_table(rows)]


def _view(options: argparse.Namespace, data: Path | None, peers: _Peers) -> _Made:
    assert data is not None
    rows = asyncio.run(agents_view(data))
    return rows, [one_browse_table(rows["one"]), ways_table(rows["ways"])]


def _learning(options: argparse.Namespace, data: Path | None, peers: _Peers) -> _Made:
    assert data is not None
    rows = asyncio.run(learning(data))
    return rows, [learning_table(rows)]


def _costs(options: argparse.Namespace, data: Path | None, peers: _Peers) -> _Made:
    peer = peers.get(_COST_PEER)
    sizes = []
    for size in options.sizes:
        with step(f"costs: {size:,} tools"):
            beside = peer if isinstance(peer, Peer) and size <= PEER_TOOLS else None
            sizes.append(measure(corpus(size, QUERIES, data), beside, [*options.beside, HERE]))
    return sizes, [costs_table(sizes)]


_SECTIONS: Mapping[str, Callable[[argparse.Namespace, Path | None, _Peers], _Made]] = {
    "quality": _quality,
    "view": _view,
    "learning": _learning,
    "costs": _costs,
}
_NEED_DATA = ("quality", "view", "learning")


if __name__ == "__main__":
    main()
