"""``wicketgate check --model``: the real providers over real HTTP, against a scripted server on loopback."""

import json
from pathlib import Path
from typing import Any

import pytest

from app.commands.check_model import ModelTrial, try_models
from tests.support.anthropic_replies import messages_text_turn
from tests.support.certificates import Authority
from tests.support.model_server import DONE, ModelServer, Reply, chunk, json_reply, text_turn
from tests.support.ports import free_port
from tests.support.requirement import requirement
from wicketgate.config.settings import Settings

KEY = "key-of-the-operator-1234"


async def trials(base_url: str, **model: Any) -> list[ModelTrial]:
    given = {"provider": "openai-chat", "base_url": base_url, "model": "some-model", "api_key": KEY, **model}
    return await try_models(Settings.model_validate({"model": given}))


async def failed(reply: Reply, **model: Any) -> ModelTrial:
    async with ModelServer(reply) as server:
        (trial,) = await trials(server.base_url, **model)
        assert len(server.requests) == 1, "one request, whatever comes back"
    assert not trial.ok
    return trial


@requirement("OPS-108")
async def test_a_model_and_its_fallbacks_are_asked_one_tiny_question_each() -> None:
    async with ModelServer(text_turn("ok")) as first, ModelServer(messages_text_turn("ok")) as second:
        fallback = {"provider": "anthropic-messages", "base_url": second.base_url, "model": "other", "api_key": "k" * 9}
        model, stand_in = await trials(first.base_url, fallbacks=[fallback])
    assert (model.setting, model.model, model.ok) == ("model", "some-model", True)
    assert (stand_in.setting, stand_in.model, stand_in.ok) == ("model.fallbacks[0]", "other", True)
    for server in (first, second):
        (request,) = server.requests
        assert request.body["max_tokens"] == 16
        assert len(json.dumps(request.body)) < 300


@requirement("OPS-108")
async def test_an_answer_that_is_cut_at_the_small_bound_is_good() -> None:
    async with ModelServer(Reply([chunk({"role": "assistant"}), chunk({}, "length"), DONE])) as server:
        (trial,) = await trials(server.base_url)
    assert trial.ok


@requirement("OPS-108")
async def test_a_budget_for_thinking_keeps_the_bound_that_it_needs() -> None:
    async with ModelServer(messages_text_turn("ok")) as server:
        thinking = {"thinking": {"type": "enabled", "budget_tokens": 2_000}}
        (trial,) = await trials(server.base_url, provider="anthropic-messages", extra=thinking, max_tokens=3_000)
        assert server.requests[0].body["max_tokens"] == 3_000
    assert trial.ok


@requirement("OPS-108")
async def test_the_scripted_model_says_that_it_is_a_script() -> None:
    (trial,) = await try_models(Settings())
    assert (trial.ok, "a script" in trial.mend) == (True, True)


def error(status: int, message: str) -> Reply:
    return json_reply(status, {"error": {"message": message}})


@requirement("OPS-108")
@pytest.mark.parametrize(
    ("reply", "said", "mend"),
    [
        (error(401, "Incorrect API key provided"), "HTTP 401: Incorrect API key provided", "Set model.api_key to a"),
        (error(403, "Country not supported"), "HTTP 403", "May the key in model.api_key use model.model?"),
        (error(404, "The model `x` does not exist"), "HTTP 404", "Set model.model to a model"),
        (error(400, "unknown model: x"), "HTTP 400", "Set model.model to a model"),
        (error(404, "some-model is not here"), "HTTP 404", "Set model.model to a model"),
        (Reply([b"<html><h1>Not Found</h1></html>"], 404), "HTTP 404: Not Found", "Is model.base_url (http://127"),
        (error(405, "Method Not Allowed"), "HTTP 405", "Is model.base_url (http://127"),
        (Reply([], 302, {"location": "/login"}), "HTTP 302", "redirects"),
        (error(400, "temperature is too hot"), "HTTP 400", "model.extra"),
        (error(402, "Insufficient credits"), "HTTP 402", "has no credit"),
        (error(429, "You exceeded your current quota"), "HTTP 429", "used up its quota"),
        (error(429, "slow down"), "HTTP 429", "try again later"),
        (error(503, "overloaded"), "HTTP 503", "The provider has failed"),
        (Reply([b"<html>Welcome</html>"], 200, {"content-type": "text/html"}), "", "does it speak openai-chat?"),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
async def test_a_failure_names_the_setting_that_mends_it(reply: Reply, said: str, mend: str) -> None:
    trial = await failed(reply)
    assert trial.error.startswith(said)
    assert trial.error
    assert mend in trial.mend
    assert trial.line.startswith("model (some-model): ")


@requirement("OPS-108")
async def test_a_missing_key_is_told_as_such() -> None:
    trial = await failed(error(401, "no key"), api_key=None)
    assert trial.mend == "Set model.api_key: none is set"


@requirement("OPS-108")
async def test_an_address_that_nothing_answers_at_is_named(tmp_path: Path) -> None:
    port = free_port()
    (refused,) = await trials(f"http://127.0.0.1:{port}/v1")
    assert (refused.ok, refused.error) == (False, f"it refuses connections (http://127.0.0.1:{port}/v1)")
    assert "model.base_url" in refused.mend
    (nowhere,) = await trials("http://no-such-host.invalid/v1")
    assert (nowhere.ok, "(http://no-such-host.invalid/v1)" in nowhere.error) == (False, True)
    async with ModelServer(error(400, "The plain HTTP request was sent to HTTPS port")) as server:
        (plain,) = await trials(server.base_url)
    assert (plain.error.startswith("it speaks https"), plain.mend) == (True, "Write https:// in model.base_url")
    async with ModelServer(tls=Authority(tmp_path).serving("127.0.0.1")) as server:
        (untrusted,) = await trials(server.base_url)
    assert "network.ca_file" in untrusted.mend


@requirement("OPS-109")
async def test_no_secret_of_ours_is_shown_whatever_the_provider_says() -> None:
    quoted = f"bad key {KEY} and sk-other-secret-1234 \x1b[2J of user"
    trial = await failed(error(401, quoted))
    assert KEY not in trial.line
    assert "sk-other-secret-1234" not in trial.line
    assert "\x1b" not in trial.line
    assert "of user" in trial.line
    async with ModelServer(error(404, "?")) as server:
        address = server.base_url.replace("://", "://user:very-private@")
        (elsewhere,) = await trials(address)
    assert "very-private" not in elsewhere.line
