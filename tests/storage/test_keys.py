"""Keys as rows: damage, bounds, a store that is away at the start (ACCESS-340)."""

import pytest

from tests.support.failing_store import FailingStore
from tests.support.requirement import requirement
from tests.support.until import until
from wicketgate.access.identity import HashedKey, Identity
from wicketgate.config.settings import Settings
from wicketgate.gate import Gate
from wicketgate.storage import keys as module
from wicketgate.storage.keys import StoredKeys
from wicketgate.storage.memory import MemoryStore
from wicketgate.storage.store import Full, Kind, Put

ANN = HashedKey("ann", "a" * 64, Identity("ann", ("tools:*",), "ann", ("lead",)), expires_at=5e9)


@requirement("ACCESS-340")
@pytest.mark.parametrize(
    "data", [b"", b"{}", b'["ann"]', b'["ann","aa",1,null]', b'["ann","aa",true,["a",[1],[],null]]']
)
async def test_a_damaged_row_is_no_key(data: bytes, caplog: pytest.LogCaptureFixture) -> None:
    store = MemoryStore()
    keys = StoredKeys(store)
    await keys.put(ANN, [])
    await store.step([Put(module._KEY, "odd", data)])
    await keys.read()
    assert keys.made == (ANN,)
    assert "damaged row" in caplog.text


@requirement("ACCESS-340")
async def test_keys_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_KEY", Kind("key", most_rows=1, listed=True))
    keys = StoredKeys(MemoryStore())
    await keys.put(ANN, [])
    with pytest.raises(Full):
        await keys.put(HashedKey("ben", "b" * 64, Identity("ben")), [])


@requirement("ACCESS-340")
async def test_a_store_that_is_away_at_the_start_gives_its_keys_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wicketgate.gate_parts.LOOK_S", 0.01)
    store = FailingStore(refused=("of_owner",))
    await StoredKeys(store).put(ANN, [])
    store.unavailable = True
    monkeypatch.setattr("wicketgate.gate_parts.make_store", lambda *_: store)
    async with Gate(Settings()) as gate:
        assert gate.keys.accepted() == []
        store.unavailable = False
        await until(lambda: gate.keys.accepted() == [ANN])
