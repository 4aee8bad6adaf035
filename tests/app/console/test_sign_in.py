"""The sign-in link: a code that one sign-in exchanges for the key of this start."""

import os

from starlette.testclient import TestClient

from app.console.sign_in import GOOD_FOR_S, SignIn
from app.lifespan import console_link, usual_greeting
from app.local_key import local_key
from app.main import create_app
from tests.support.requirement import requirement
from wicketgate.access.identity import hash_key
from wicketgate.config.settings import Settings

PATH = "/console/api/sign-in"


@requirement("OPS-259")
def test_a_code_is_good_once_and_for_a_while() -> None:
    time = [0.0]
    sign_in = SignIn("the key", lambda: time[0])
    assert sign_in.exchange("") is None
    assert sign_in.exchange(sign_in.code + "x") is None
    assert sign_in.exchange(sign_in.code) == "the key"
    assert sign_in.exchange(sign_in.code) is None
    late = SignIn("the key", lambda: time[0])
    time[0] = GOOD_FOR_S
    assert late.exchange(late.code) is None


@requirement("OPS-259")
def test_of_all_processes_one_exchanges_the_code() -> None:
    sign_in = SignIn("the key")
    child = os.fork()
    if child == 0:
        os._exit(7 if sign_in.exchange(sign_in.code) == "the key" else 1)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 7
    assert sign_in.exchange(sign_in.code) is None


@requirement("OPS-259")
def test_the_code_is_exchanged_without_a_credential() -> None:
    app = create_app(Settings())
    client = TestClient(app, base_url="http://127.0.0.1", client=("127.0.0.1", 5))
    for body, status in ((b"[]", 400), (b"{", 400), (b'{"code": 5}', 400), (b'{"code": "wrong"}', 401)):
        refused = client.post(PATH, content=body)
        assert (refused.status_code, set(refused.json())) == (status, {"code", "message"}), body
    assert client.get(PATH).status_code != 200


@requirement("OPS-259")
def test_a_gate_with_configured_keys_takes_no_code() -> None:
    keys = [{"id": "a", "sha256": hash_key("wg_a_1"), "actor": "ann", "permissions": ["*"]}]
    client = TestClient(create_app(Settings.model_validate({"auth": {"keys": keys}})), base_url="http://127.0.0.1")
    assert client.post(PATH, json={"code": ""}).status_code == 401


@requirement("OPS-259")
def test_the_start_prints_the_link_where_it_has_made_the_key() -> None:
    local = local_key(None)
    assert local.sign_in is not None
    link = f"http://127.0.0.1:8080/console/#code={local.sign_in.code}"
    assert console_link("http://127.0.0.1:8080", local) == link
    assert f"  Console: {link}\n" in usual_greeting("http://0.0.0.0:8080", local, Settings())
    configured = usual_greeting("http://127.0.0.1:8080", None, Settings())
    assert "  Console: http://127.0.0.1:8080/console/\n" in configured
    assert "onsole" not in usual_greeting(
        "http://127.0.0.1:8080", local, Settings.model_validate({"server": {"console": False}})
    )
    assert local.sign_in.exchange(local.sign_in.code) == local.secret
