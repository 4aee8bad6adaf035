"""Metrics of the workers of one service, as text that each of them writes and all of them show (OPS-180)."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

from wicketgate.storage.core import sound
from wicketgate.storage.encoding import hashed, packed, unpacked
from wicketgate.storage.store import Drop, Kind, Put, Store

LIFE_S = 15.0
_FIGURES = Kind("figures", listed=True)


@dataclass(frozen=True, slots=True)
class Figures:
    """*text* is that of the worker at place *number*, which was started for the *starts*-th time."""

    number: int
    starts: int
    text: str


class SharedFigures:
    """The figures of the workers of *service*, of which this process has the id *process*. All methods raise
    StoreUnavailable."""

    def __init__(self, store: Store, service: str, process: str) -> None:
        self._store = store
        self._owner = hashed(service)
        self._process = process

    async def put(self, figures: Figures) -> None:
        """Writes the figures of this process, which lapse after LIFE_S."""
        data = packed([figures.number, figures.starts, figures.text])
        await self._store.step([Put(_FIGURES, self._process, data, self._owner, life_s=LIFE_S)])

    async def drop(self) -> None:
        await self._store.step([Drop(_FIGURES, self._process)])

    async def others(self) -> Mapping[int, Figures]:
        """Returns the figures of the other workers by their place: of two that had one place, those of the later."""
        found = dict[int, Figures]()
        for row in await self._store.of_owner(_FIGURES, self._owner):
            if row.key == self._process:
                continue
            each = sound(_FIGURES.name, row.key, partial(_read, row.data))
            if each is not None and (each.number not in found or found[each.number].starts < each.starts):
                found[each.number] = each
        return found


def _read(data: bytes) -> Figures:
    """Raises ValueError and TypeError for damaged *data*."""
    number, starts, text = unpacked(data)
    if type(number) is not int or type(starts) is not int or not isinstance(text, str):
        raise TypeError
    return Figures(number, starts, text)
