"""The metrics of all workers, as one of them shows them (OPS-180). Each writes its own to the store that they share.

Each series gets the label ``worker``: a counter of a process that was replaced begins at 0 again, which is visible in
its own series, and would be a dip in a sum.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress

from app.workers.place import Place
from wicketgate.storage.figures import Figures, SharedFigures
from wicketgate.storage.store import StoreUnavailable
from wicketgate.task_end import end_tasks

log = logging.getLogger("wicketgate.workers")

WRITE_EVERY_S = 5.0
_READ_S = 1.0
_HELP = "# HELP "


class WorkerMetrics:
    """The metrics of the workers, for the one at *place*. *read* makes its own, *shared* has those of the others."""

    def __init__(self, place: Place, read: Callable[[], Awaitable[bytes]], shared: SharedFigures) -> None:
        self._place = place
        self._read = read
        self._shared = shared

    @asynccontextmanager
    async def sharing(self) -> AsyncIterator[None]:
        """Gives this worker's metrics to the others while the context is open."""
        writing = asyncio.create_task(self._write(), name="metrics for the other workers")
        try:
            yield
        finally:
            await end_tasks(writing)
            with suppress(StoreUnavailable):
                await self._shared.drop()

    async def metrics(self) -> bytes:
        """Returns the metrics of this worker as they are now, and those of the others as they last wrote them."""
        place = self._place
        others, own = await asyncio.gather(self._others(), self._own())
        texts = {number: each.text for number, each in others.items() if number < place.count} | {place.number: own}
        return (merged(dict(sorted(texts.items()))) + workers_known(texts, place.count)).encode()

    async def _own(self) -> str:
        return (await self._read()).decode() + starts_text(self._place.starts)

    async def _others(self) -> Mapping[int, Figures]:
        """Returns nothing if the store does not answer within a second."""
        try:
            async with asyncio.timeout(_READ_S):
                return await self._shared.others()
        except (StoreUnavailable, TimeoutError) as error:
            log.debug("the metrics of the other workers were not read: %s", error)
            return {}

    async def _write(self) -> None:
        place, failed = self._place, False
        while True:
            try:
                await self._shared.put(Figures(place.number, place.starts, await self._own()))
                failed = False
            except StoreUnavailable as error:
                log.log(logging.DEBUG if failed else logging.ERROR, "metrics are not shared at the moment: %s", error)
                failed = True
            except Exception:
                # The last boundary of this task: the next figures have to come all the same.
                log.exception("metrics were not shared")
            await asyncio.sleep(WRITE_EVERY_S)


def merged(texts: Mapping[int, str]) -> str:
    """Returns the metrics in *texts*, each by the number of its worker, one family after the other."""
    heads: dict[str, list[str]] = {}
    samples: dict[str, list[str]] = {}
    for worker, text in texts.items():
        for name, head, lines in _families(text.splitlines()):
            heads.setdefault(name, head)
            samples.setdefault(name, []).extend(_labelled(line, worker) for line in lines)
    return "".join(f"{line}\n" for name, head in heads.items() for line in (*head, *samples[name]))


def workers_known(known: Iterable[int], count: int) -> str:
    """Returns the metric that says of which of *count* workers figures are *known*."""
    there = set(known)
    lines = [
        "# HELP wicketgate_worker_up 1 if this worker has given its figures in the last 15 seconds.",
        "# TYPE wicketgate_worker_up gauge",
        *(f'wicketgate_worker_up{{worker="{number}"}} {int(number in there)}.0' for number in range(count)),
    ]
    return "".join(f"{line}\n" for line in lines)


def starts_text(starts: int) -> str:
    """Returns the metric that says how often the worker at this place was started."""
    return (
        "# HELP wicketgate_worker_starts_total Starts of the worker at this place.\n"
        "# TYPE wicketgate_worker_starts_total counter\n"
        f"wicketgate_worker_starts_total {starts}.0\n"
    )


def _families(lines: Sequence[str]) -> Iterator[tuple[str, list[str], list[str]]]:
    """Yields the name, the comments and the samples of each family."""
    name, head, samples = "", list[str](), list[str]()
    for line in lines:
        if line.startswith(_HELP):
            if name:
                yield name, head, samples
            name, head, samples = line.split(" ", 3)[2], [line], []
        elif line.startswith("#"):
            head.append(line)
        elif line:
            samples.append(line)
    if name:
        yield name, head, samples


def _labelled(sample: str, worker: int) -> str:
    """Returns *sample* with the label. A name holds neither a brace nor a blank."""
    label = f'worker="{worker}"'
    brace, blank = sample.find("{"), sample.find(" ")
    if 0 <= brace < blank:
        rest = sample[brace + 1 :]
        return f"{sample[:brace]}{{{label}{'' if rest.startswith('}') else ','}{rest}"
    return f"{sample[:blank]}{{{label}}}{sample[blank:]}"
