"""The application under a server that is not ours, started as FastAPI people start things."""

import asyncio
import re
import signal
import sys
from pathlib import Path

import httpx
import pytest

from app.commands.gate_client import open_gate
from tests.support.model_server import DONE, ModelServer, Reply, chunk
from tests.support.process import START_BOUND_S, Program, alive, children, program
from tests.support.requirement import requirement
from tests.support.served import ECHO, INITIALIZE, write_config
from tests.support.service import KEY, OTHER_KEY, chat_body, frames
from wicketgate.access.identity import Identity
from wicketgate.config.settings import Settings

ATTRIBUTE = ("uvicorn", "app.main:app")
FACTORY = ("uvicorn", "--factory", "wicketgate:create_app")
BOUND_S = 40.0


async def address(running: Program) -> str:
    """The address, once the service is ready."""
    await running.wait_for("Wicketgate is ready")
    return (await running.wait_for(r"running on (http://127\.0\.0\.1:\d+)")).group(1)


async def ended_well(running: Program) -> None:
    # Uvicorn raises the signal that stopped it once more, when all is closed.
    assert await running.stop() == -signal.SIGTERM
    assert "Application shutdown complete" in running.stderr
    assert "Traceback" not in running.stderr + running.stdout


async def asked(url: str, key: str) -> tuple[str, list[str]]:
    """The text of one search through ``/mcp``, and the names of the events of one chat."""
    async with asyncio.timeout(BOUND_S), open_gate(Settings(), Identity("me", ()), url, key) as gate:
        cards = (await gate.call("tool_browse", {"path": "/"})).text
        return cards, [name async for name, _ in gate.chat(chat_body())]


@requirement("OPS-21", "OPS-58", "OPS-59")
@pytest.mark.parametrize("how", [ATTRIBUTE, FACTORY], ids=["attribute", "factory"])
async def test_without_a_configuration_it_shows_one_key_which_opens_both_doors(
    how: tuple[str, ...], tmp_path: Path
) -> None:
    async with program(*how, "--port", "0", cwd=tmp_path, cold=how is ATTRIBUTE) as running:
        url = await address(running)
        key = (await running.wait_for("Key, for this run only: (wg_local_\\S+)")).group(1)
        events = (await asked(url, key))[1]
        await ended_well(running)
    assert events[-1] == "done"
    said = [line["message"] for line in running.logs() if line["component"] == "configuration"]
    assert said[0] == "Configuration: no file, only defaults; wicketgate init writes one"
    assert said[1].startswith("There are no upstreams")
    assert len(re.findall("Key, for this run only", running.stderr)) == 1
    assert "several workers need auth.keys or auth.key_file" in running.stderr
    assert key not in running.stdout
    # The logs are those of `wicketgate serve`, and one line says what this server does not do.
    lines = [line["message"] for line in running.logs()]
    assert len([line for line in lines if "not the server of `wicketgate serve`" in line]) == 1
    assert any(line.startswith("POST /engine/chat 200") for line in lines)


@requirement("OPS-21")
@pytest.mark.parametrize("how", [ATTRIBUTE, FACTORY], ids=["attribute", "factory"])
async def test_with_a_configuration_its_tools_are_there_and_a_stop_leaves_no_process_behind(
    how: tuple[str, ...], tmp_path: Path
) -> None:
    config = write_config(tmp_path)
    if how is FACTORY:
        named, folder = config.rename(tmp_path / "named.yaml"), tmp_path
        env = {"WICKETGATE_CONFIG": str(named)}
    else:
        folder, env = tmp_path, {}
    async with program(*how, "--port", "0", cwd=folder, env=env) as running:
        cards, events = await asked(await address(running), KEY)
        servers = children(running.process.pid)
        assert len(servers) == 1
        await ended_well(running)
    assert "echo" in cards
    assert events[-1] == "done"
    assert not any(map(alive, servers))
    assert "Key, for this run only" not in running.stderr


@requirement("OPS-24")
async def test_a_stop_ends_what_listens_without_end_and_lets_a_chat_finish(tmp_path: Path) -> None:
    go_on = asyncio.Event()
    reply = Reply([chunk({"content": "one"}), go_on, chunk({"content": "two"}), chunk({}, "stop"), DONE])
    async with ModelServer(reply) as model:
        config = {"provider": "openai-chat", "base_url": model.base_url, "model": "some-model"}
        write_config(tmp_path, upstreams=[], model=config, server={"drain_s": BOUND_S})
        async with program(*ATTRIBUTE, "--port", "0", cwd=tmp_path) as running:
            url = await address(running)
            headers = {"Authorization": f"Bearer {KEY}", "Accept": "application/json, text/event-stream"}
            async with httpx.AsyncClient(base_url=url, headers=headers, timeout=BOUND_S, trust_env=False) as http:
                session = {"mcp-session-id": (await http.post("/mcp", json=INITIALIZE)).headers["mcp-session-id"]}
                async with (
                    http.stream("GET", "/mcp", headers=session) as listening,
                    http.stream("POST", "/engine/chat", json=chat_body()) as chatting,
                ):
                    pieces = chatting.aiter_text()
                    text = await anext(pieces)
                    running.process.send_signal(signal.SIGTERM)
                    async with asyncio.timeout(BOUND_S):
                        assert [piece async for piece in listening.aiter_text()] == []
                    go_on.set()
                    text += "".join([piece async for piece in pieces])
            await ended_well(running)
    assert [event for event, _ in frames(text)] == ["text-delta", "text-delta", "done"]
    assert frames(text)[-1][1]["finish_reason"] == "stop"


@requirement("OPS-21")
async def test_sighup_reads_the_configuration_again_under_another_server(tmp_path: Path) -> None:
    write_config(tmp_path, upstreams=[])
    async with program(*ATTRIBUTE, "--port", "0", cwd=tmp_path) as running:
        url = await address(running)
        assert (await asked(url, KEY))[1][-1] == "done"
        write_config(tmp_path, key=OTHER_KEY, upstreams=[])
        running.process.send_signal(signal.SIGHUP)
        await running.wait_for("configuration applied", "stdout")
        assert (await asked(url, OTHER_KEY))[1][-1] == "done"
        await ended_well(running)


@requirement("OPS-21")
async def test_without_a_required_upstream_the_start_fails_with_a_line_that_names_it(tmp_path: Path) -> None:
    gone = {"name": "gone", "command": ["/nowhere/server"], "required": True}
    write_config(tmp_path, upstreams=[ECHO, gone])
    async with program(*ATTRIBUTE, "--port", "0", cwd=tmp_path) as running:
        assert await running.ended() != 0
    assert "running on" not in running.stderr
    told = (
        "required upstream is not connected (gone: the command was not found (/nowhere/server): there is no such file"
    )
    assert any(told in line["message"] for line in running.logs())


@pytest.mark.parametrize("how", [ATTRIBUTE, FACTORY], ids=["attribute", "factory"])
async def test_a_wrong_configuration_ends_the_start_with_one_line(how: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / "wicketgate.yaml").write_text("nonsense: true\n")
    async with program(*how, "--port", "0", cwd=tmp_path) as running:
        assert await running.ended() == 1
    (line,) = running.stderr.splitlines()
    assert line.startswith("wicketgate: ")
    assert "nonsense: unknown key" in line


@requirement("OPS-21")
async def test_importing_the_application_reads_no_configuration_and_asking_for_it_does(tmp_path: Path) -> None:
    (tmp_path / "wicketgate.yaml").write_text("nonsense: true\n")
    for code, status in (("import app.main", 0), ("from app.main import app", 1)):
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", code, cwd=tmp_path, stderr=asyncio.subprocess.PIPE
        )
        async with asyncio.timeout(START_BOUND_S):
            _, err = await process.communicate()
        assert process.returncode == status, err.decode()
    assert "nonsense: unknown key" in err.decode().splitlines()[-1]


@requirement("OPS-22")
async def test_a_python_upstream_imports_its_neighbours_when_it_is_loaded_and_later(tmp_path: Path) -> None:
    folder = tmp_path / "tools"
    folder.mkdir()
    (folder / "early.py").write_text("WORD = 'Good'\n")
    (folder / "late.py").write_text("WORD = 'morning'\n")
    (folder / "office.py").write_text(
        "from early import WORD\nfrom wicketgate.tools import ToolRegistry\nregistry = ToolRegistry()\n"
        "@registry.tool\ndef greet() -> str:\n    import late\n    return f'{WORD} {late.WORD}'\n"
    )
    write_config(tmp_path, upstreams=[{"name": "office", "python": "office:registry", "cwd": "tools"}])
    async with program(*ATTRIBUTE, "--port", "0", cwd=tmp_path) as running:
        url = await address(running)
        async with asyncio.timeout(BOUND_S), open_gate(Settings(), Identity("me", ()), url, KEY) as gate:
            (card,) = (await gate.call("tool_browse", {"query": "greet"})).structured["cards"]
            answer = await gate.call("tool_execute", {"tool_id": card["id"], "args": {}})
        await ended_well(running)
    assert "Good morning" in str(answer.structured)
