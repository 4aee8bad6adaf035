"""The key of a service that has none configured, and which callers it serves."""

import json
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from app.local_key import local_key
from app.main import create_app
from tests.support.process import ROOT
from tests.support.requirement import requirement
from tests.support.service import chat_body
from wicketgate.access.identity import HashedKey, hash_key
from wicketgate.config.settings import AuthSettings, ServerSettings, Settings
from wicketgate.errors import ConfigError


@requirement("ACCESS-28")
def test_the_first_start_makes_the_key_and_the_next_ones_take_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = local_key(tmp_path / "key.json"), local_key(tmp_path / "key.json")
    assert first.secret
    assert not second.secret
    assert first.hashed == second.hashed
    assert first.hashed.sha256 == hash_key(first.secret)
    assert capsys.readouterr().err.count(first.secret) == 1


@requirement("ACCESS-28")
def test_first_starts_at_once_make_one_key_and_all_take_it(tmp_path: Path) -> None:
    together = threading.Barrier(8)

    def start(file: Path) -> HashedKey:
        together.wait(10)
        return local_key(file).hashed

    with ThreadPoolExecutor(8) as pool:
        for number in range(40):
            file = tmp_path / f"{number}.json"
            assert len(set(pool.map(start, [file] * 8))) == 1
            assert file.stat().st_mode & 0o777 == 0o600
    assert len(list(tmp_path.iterdir())) == 40, "nothing stays beside the files"


@requirement("ACCESS-28")
def test_a_start_waits_for_another_that_is_still_writing_the_key(tmp_path: Path) -> None:
    made = local_key(tmp_path / "made.json")
    file = tmp_path / "key.json"
    file.touch()
    writer = threading.Timer(0.1, lambda: file.write_bytes((tmp_path / "made.json").read_bytes()))
    writer.start()
    assert local_key(file).hashed == made.hashed
    writer.join()


@requirement("ACCESS-5")
def test_without_a_file_each_start_has_its_own_key() -> None:
    assert local_key(None).secret != local_key(None).secret


@requirement("ACCESS-28")
@pytest.mark.parametrize("content", ["", "{", "[]", json.dumps({"id": "local", "sha256": "0" * 63, "actor": "local"})])
def test_a_file_that_holds_no_key_is_an_error_and_stays_as_it_is(tmp_path: Path, content: str) -> None:
    (tmp_path / "key.json").write_text(content)
    with pytest.raises(ConfigError, match=r"auth\.key_file: .*key\.json does not hold a key"):
        local_key(tmp_path / "key.json")
    assert (tmp_path / "key.json").read_text() == content
    with pytest.raises(ConfigError, match="cannot be made or read: No such file"):
        local_key(tmp_path / "missing" / "key.json")


@requirement("ACCESS-5", "ACCESS-28")
@pytest.mark.parametrize(("kept", "status"), [(False, 403), (True, 401)])
async def test_a_kept_key_serves_callers_elsewhere_and_a_key_for_one_run_does_not(
    tmp_path: Path, kept: bool, status: int
) -> None:
    app = create_app(Settings(auth=AuthSettings(key_file=tmp_path / "key.json" if kept else None)))
    elsewhere = httpx.ASGITransport(app, client=("192.0.2.1", 40_000))
    async with httpx.AsyncClient(transport=elsewhere, base_url="http://localhost") as http:
        response = await http.post("/engine/chat", json=chat_body(), headers={"Authorization": "Bearer wg_local_wrong"})
    assert response.status_code == status


@requirement("ACCESS-28")
def test_a_kept_key_is_enough_to_listen_on_every_address(tmp_path: Path) -> None:
    everywhere = ServerSettings(host="0.0.0.0")
    assert Settings(server=everywhere, auth=AuthSettings(key_file=tmp_path / "key.json")).server == everywhere
    with pytest.raises(ValueError, match=r"auth\.keys is empty"):
        Settings(server=everywhere)


@requirement("ACCESS-28")
def test_a_key_that_cannot_be_shown_is_not_kept(tmp_path: Path) -> None:
    make = "import sys; from pathlib import Path; from app.local_key import local_key; local_key(Path(sys.argv[1]))"
    line = f'exec "$0" -c "{make}" "$1" 2>/dev/full'
    process = subprocess.run(["sh", "-c", line, sys.executable, str(tmp_path / "key.json")], cwd=ROOT, timeout=30)
    # 120 is Python's own: it cannot flush stderr at its end either.
    assert process.returncode in (1, 120)
    assert not (tmp_path / "key.json").exists()


FULL = """
import resource, signal, sys
from pathlib import Path
from app.local_key import local_key
from wicketgate.errors import ConfigError
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
try:
    local_key(Path(sys.argv[1]))
except ConfigError as error:
    print(error)
"""


@requirement("ACCESS-28")
def test_a_key_that_the_disk_has_no_room_for_leaves_no_file(tmp_path: Path) -> None:
    """An empty file would be refused by every later start."""
    file = tmp_path / "key"
    full = subprocess.run([sys.executable, "-c", FULL, str(file)], cwd=ROOT, capture_output=True, text=True, timeout=40)
    assert "cannot be made or read: File too large" in full.stdout, full.stderr
    assert not file.exists()
    assert local_key(file).secret
