"""The ways between workers over Unix sockets."""

import subprocess
import sys
from itertools import count
from pathlib import Path

import pytest

from app.workers.forwarding import WorkerPeers, _Connection
from app.workers.load import Loads
from app.workers.place import Place
from tests.storage.peers_contract import Make, PeersContract, outlives_its_asker, shout
from tests.support.requirement import requirement
from tests.support.service import BOUND_S
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


LIVES = """
import sys
from pathlib import Path
from wicketgate.peers import new_peer_id
from wicketgate.storage.sqlite_marks import ProcessMarks
marks = ProcessMarks(Path(sys.argv[1]))
own = new_peer_id() + marks.ending
with marks.held(own):
    print(own, flush=True)
    sys.stdin.read()
"""


@requirement("EXEC-110")
def test_another_file_at_the_place_of_the_marks_says_nothing_of_a_process_that_lives(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    marks = tmp_path / "store.db-marks"

    def process() -> "tuple[subprocess.Popen[str], str]":
        command = [sys.executable, "-c", LIVES, str(tmp_path / "store.db")]
        child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert child.stdout is not None
        return child, child.stdout.readline().strip()

    def ended(*ids: str) -> list[bool]:
        return [ProcessMarks(tmp_path / "store.db").ended(each) for each in ids]

    (first, old), (killed, gone) = process(), process()
    with first, killed:
        killed.kill()
        killed.wait()
        assert ended(old, gone) == [False, True]
        marks.unlink()
        second, new = process()
        with second:
            assert ended(old, gone, new) == [False, False, False]
            second.kill()
            second.wait()
            assert ended(old, gone, new) == [False, False, True]
        # One that cannot open the file says so once, and is not reported as ended.
        marks.unlink()
        marks.mkdir()
        unmarked = ProcessMarks(tmp_path / "store.db")
        (warned,) = [each for each in caplog.records if each.name == "wicketgate.storage"]
        assert "store.db-marks (Is a directory)" in warned.getMessage()
        marks.rmdir()
        with unmarked.held(f"0{unmarked.ending}"):
            assert ended(f"0{unmarked.ending}", old) == [False, False]
        first.communicate(timeout=BOUND_S)
