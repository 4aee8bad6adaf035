"""The demo with questions all the time, and the pictures that are made of it."""

from itertools import islice

import httpx

from examples.traffic import questions
from tests.console.pictures import FOLDER, MOST_BYTES, THEMES
from tests.support.process import ROOT, program
from tests.support.requirement import requirement


@requirement("OPS-266")
async def test_the_same_seed_asks_the_same() -> None:
    assert list(islice(questions(1), 50)) == list(islice(questions(1), 50)) != list(islice(questions(2), 50))


@requirement("OPS-266")
async def test_questions_are_asked_until_the_demo_ends() -> None:
    async with program("examples.demo", "--port", "0", "--traffic") as demo:
        url = (await demo.wait_for(r"ready on (http://\S+)"))[1]
        key = (await demo.wait_for(r"(wg_local_[\w-]+)"))[1]
        headers = {"Authorization": f"Bearer {key}"}
        async with (
            httpx.AsyncClient(base_url=url, headers=headers, trust_env=False, timeout=40) as http,
            http.stream("GET", "/console/api/events") as news,
        ):
            async for line in news.aiter_lines():
                if line == "event: call":
                    break
        assert await demo.stop() == 0
        assert "Traceback" not in demo.stderr


@requirement("OPS-267")
async def test_the_pictures_of_the_readme_are_small_and_there() -> None:
    readme = (ROOT / "README.md").read_text("utf-8")
    for theme in THEMES:
        picture = FOLDER / f"console-{theme}.png"
        assert picture.read_bytes().startswith(b"\x89PNG")
        assert picture.stat().st_size < MOST_BYTES
        assert f"docs/{picture.name}" in readme
