"""The ways between workers over Unix sockets."""

from itertools import count
from pathlib import Path

import pytest

from app.workers.forwarding import WorkerPeers, _Connection
from app.workers.load import Loads
from app.workers.place import Place
from tests.storage.peers_contract import Make, PeersContract, outlives_its_asker, shout
from tests.support.requirement import requirement
from wicketgate.peer_channels import Channel
from wicketgate.peers import Alone, NotReached, Peers
from wicketgate.storage.sqlite_marks import ProcessMarks


@requirement("OPS-199")
class TestWorkerPeers(PeersContract):
    @pytest.fixture
    def make(self, tmp_path: Path) -> Make:
        numbers = count()
        return lambda: WorkerPeers(Place(next(numbers), 4, 1, tmp_path, -1, -1, Loads.of(4)))


@requirement("OPS-199")
async def test_the_worker_that_came_in_place_of_another_is_not_taken_for_it(tmp_path: Path) -> None:
    def at(number: int) -> WorkerPeers:
        return WorkerPeers(Place(number, 2, 1, tmp_path, -1, -1, Loads.of(2)))

    one, before, after = at(0), at(1), at(1)
    after.answer("shout", shout)
    async with one.answering(), after.answering():
        assert not await one.alive(before.own_id)
        with pytest.raises(NotReached) as gone:
            await one.ask(before.own_id, "shout", {"say": "x"})
        assert gone.value.gone
        assert await one.ask(after.own_id, "shout", {"say": "x"}) == {"said": "xx"}


@requirement("FACE-124")
async def test_an_answer_may_outlive_an_asker_that_is_lost(tmp_path: Path) -> None:
    opened = list[_Connection]()

    class Asker(WorkerPeers):
        async def open(self, peer: str) -> Channel:
            channel = await super().open(peer)
            assert isinstance(channel, _Connection)
            opened.append(channel)
            return channel

    def lose() -> None:
        for channel in opened:
            channel._writer.transport.abort()

    one, other = (kind(Place(at, 2, 1, tmp_path, -1, -1, Loads.of(2))) for at, kind in enumerate((Asker, WorkerPeers)))
    await outlives_its_asker(one, other, lose)


@requirement("EXEC-77")
@pytest.mark.parametrize("kind", ["alone", "workers"])
async def test_a_process_of_another_service_has_ended_when_its_mark_is_gone(tmp_path: Path, kind: str) -> None:
    def service(name: str) -> Peers:
        marks, place = ProcessMarks(tmp_path / "store.db"), Place(0, 1, 1, tmp_path / name, -1, -1, Loads.of(1))
        place.folder.mkdir()
        return Alone(marks) if kind == "alone" else WorkerPeers(place, marks)

    one, other = service("one"), service("other")

    async def may_live(peer: str) -> bool:
        with pytest.raises(NotReached) as missed:
            await one.ask(peer, "shout", {"say": "x"})
        return not missed.value.gone

    async with one.answering():
        async with other.answering():
            assert await may_live(other.own_id)
            with pytest.raises(NotReached):
                await one.alive(other.own_id)
            assert not await may_live("0-\udc80")
        assert not await may_live(other.own_id)
        assert not await one.alive(other.own_id)
        (tmp_path / "store.db-marks").unlink()
        assert await may_live(other.own_id)  # nothing is known any more
