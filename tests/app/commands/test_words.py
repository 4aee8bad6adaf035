"""``wicketgate words`` as a process, with a scripted model over HTTP (OPS-465 to OPS-468)."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.model_server import HOLD, ModelServer, Reply, json_reply, text_turn
from tests.support.process import outcome, program
from tests.support.python_upstream import python_upstream
from tests.support.requirement import requirement

KEY = "key-of-the-operator-1234"


class Project:
    def __init__(self, folder: Path, server: ModelServer) -> None:
        self.folder, self.server = folder, server
        self.words = folder / "wicketgate.words"

    def tools(self, tools: dict[str, str], **browse: Any) -> None:
        model = {"provider": "openai-chat", "base_url": self.server.base_url, "model": "m", "api_key": KEY}
        local = python_upstream(self.folder, *((name, "video: str", text) for name, text in tools.items()))
        settings = {
            "model": {**model, "attempts": 1},
            "upstreams": [local],
            "browse": {"words_file": str(self.words), **browse},
        }
        (self.folder / "wicketgate.yaml").write_text(yaml.safe_dump(settings))

    def args(self, *words: str) -> tuple[str, ...]:
        return ("app", words[0], "--config", str(self.folder / "wicketgate.yaml"), *words[1:])

    async def run(self, *words: str) -> tuple[int, str, str]:
        return await outcome(*self.args(*words))

    def written(self) -> dict[str, str]:
        return {entry["tool"]: entry["words"] for entry in map(json.loads, self.words.read_text().splitlines())}


@requirement("OPS-465", "OPS-467")
async def test_each_definition_is_asked_about_once_and_again_when_it_changes(tmp_path: Path) -> None:
    async with ModelServer(text_turn("1: subtitles captions\n2: bit", "coin")) as server:
        project = Project(tmp_path, server)
        project.tools({"get_transcript": "Text of a video.", "price": "Price of a coin."})
        code, out, err = await project.run("words")
        assert (code, out) == (0, f"{project.words}: words of 2 definitions written, 0 without an answer\n"), err
        assert "local:price: written" in err
        assert project.written() == {"local:get_transcript": "subtitles captions", "local:price": "bitcoin"}
        asked = server.requests[0].body["messages"][-1]["content"]
        assert "1. local:get_transcript: Text of a video. (video)" in asked
        assert (await project.run("words"))[:2] == (0, f"{project.words}: every tool has words of its definition\n")
        assert len(server.requests) == 1

        project.tools({"price": "Rate of a coin.", "fresh": "New."})
        code, out, _ = await project.run("words", "--diff")
        assert (code, [line[:20] for line in out.splitlines()]) == (
            1,
            ["+ local:fresh: has n", "- local:get_transcri", "~ local:price: its d"],
        )
        code, out, err = await project.run("check")
        assert "wicketgate words: ~ local:price: its definition changed since its words were written" in out + err
        assert len(server.requests) == 1, "showing asks nothing"
        server.script.append(text_turn("1: novelty\n2: exchange"))
        assert (await project.run("words", "--model", "cheap"))[0] == 0
        assert server.requests[1].body["model"] == "cheap"
        assert project.written() == {"local:fresh": "novelty", "local:price": "exchange"}
        code, out, _ = await project.run("browse", "novelty")
        assert out.startswith("local:fresh#")
        assert "novelty" not in out, "no caller is shown the words"


def error() -> Reply:
    return json_reply(401, {"error": {"message": f"bad key {KEY}"}})


@requirement("OPS-466")
@pytest.mark.parametrize(
    ("reply", "said"),
    [
        (text_turn("Here are some words: a, b, c"), "local:one: not answered"),
        (text_turn("\x00" * 50_000), "local:one: not answered"),
        (error(), "Set model.api_key to a valid key"),
    ],
)
async def test_a_useless_answer_is_reported_and_asked_for_again(tmp_path: Path, reply: Reply, said: str) -> None:
    async with ModelServer(reply, text_turn(f"1: {KEY} quokka")) as server:
        project = Project(tmp_path, server)
        project.tools({"one": "First."})
        code, out, err = await project.run("words")
        assert (code, out) == (1, f"{project.words}: words of 0 definitions written, 1 without an answer\n")
        assert said in err
        assert KEY not in err
        assert (await project.run("words"))[0] == 0
        assert project.written() == {"local:one": "quokka"}


@requirement("OPS-466")
async def test_an_interrupted_run_keeps_what_is_written_and_goes_on_behind_it(tmp_path: Path) -> None:
    names = [f"tool_{number:02}" for number in range(30)]
    first = text_turn("\n".join(f"{number}: w{chr(96 + number)}x" for number in range(1, 21)))
    async with ModelServer(first, Reply([HOLD])) as server:
        project = Project(tmp_path, server)
        project.tools(dict.fromkeys(names, "A tool."))
        async with program(*project.args("words")) as running:
            await server.request(1)
            assert await running.stop() != 0
        assert sorted(project.written()) == [f"local:{name}" for name in names[:20]]
        server.script.append(text_turn("\n".join(f"{number}: rest" for number in range(1, 11))))
        assert (await project.run("words"))[0] == 0
        assert "tool_20" in server.requests[2].body["messages"][-1]["content"]
        assert "tool_19" not in server.requests[2].body["messages"][-1]["content"]
        assert len(project.written()) == 30


@requirement("OPS-468")
@pytest.mark.parametrize("content", [None, "<<<<<<< ours\n", '{"tool": "a:b", "words": "y"}\n', "[1]\n"])
async def test_a_file_that_is_missing_or_malformed_is_named(tmp_path: Path, content: str | None) -> None:
    async with ModelServer() as server:
        project = Project(tmp_path, server)
        project.tools({"one": "First."})
        if content is not None:
            project.words.write_text(content)
        code, _, err = await project.run("check")
        assert code == 1
        assert str(project.words) in err
        assert ("it was not written by" in err) is (content is not None)
