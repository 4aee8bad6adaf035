"""Reading the configuration: a wrong one never starts, and the error names the place (OPS-1, OPS-2)."""

from contextlib import chdir
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import ValidationError

from tests.support.requirement import requirement
from wicketgate.config.settings import Settings, UpstreamSettings
from wicketgate.config.settings_file import find_config, load_settings
from wicketgate.errors import ConfigError


def load(folder: Path, text: str | dict[str, Any], **environ: str) -> Settings:
    path = folder / "wicketgate.yaml"
    path.write_text(text if isinstance(text, str) else yaml.safe_dump(text))
    return load_settings(path, environ)


def fault(folder: Path, text: str, **environ: str) -> str:
    with pytest.raises(ConfigError) as raised:
        load(folder, text, **environ)
    return str(raised.value)


@requirement("ACCESS-5", "OPS-3")
def test_the_defaults_listen_on_loopback_and_need_no_file() -> None:
    settings = load_settings(None, {})
    assert (settings.server.host, settings.server.port) == ("127.0.0.1", 8080)
    assert settings.model.provider == "scripted"
    assert settings.engine.max_iterations is None


@requirement("OPS-1", "OPS-2", "OPS-56", "ROUTE-24", "ACCESS-272")
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # One that says nothing is not taken for the defaults.
        ("", "is empty"),
        ("# only a remark\n", "is empty"),
        ("from_variables: [x]", "from_variables: unknown key"),
        ("model: {provider: openai-chat, model: m, base_url: 'http://127.0.0.1:0'}", "model: base_url"),
        ("server: {trusted_proxies: [proxy.example]}", "neither an address nor a network such as 10.0.0.0/8"),
        ("server: {trusted_proxies: [10.0.0.1/8]}", "neither an address nor a network such as 10.0.0.0/8"),
        ("server: {max_connections: 0}", "server.max_connections"),
        ("model: {fallbacks: [{base_url: 'http://x/v1', model: m}]}", "model.fallbacks[0].provider: "),
        ("model: {fallbacks: [{provider: anthropic-messages, model: m}]}", "model.fallbacks[0]: base_url"),
        ("model: {extra: {messages: []}}", "model.extra: messages is set by the engine"),
        ("model: {dialect: klingon}", "model.dialect: "),
        ("upstreams: [{name: a, python: 'm:r', url: 'http://x'}]", "upstreams[0]: give exactly one of"),
        ("upstreams: [{name: a, python: 'm:r', env: {A: b}}]", "upstreams[0]: env belongs to command, not to python"),
        ("upstreams: [{name: a, python: 'm:r', headers: {A: b}}]", "upstreams[0]: headers belongs to url and openapi"),
        ("upstreams: [{name: a, python: 'm:r', threads: 0}]", "upstreams[0].threads: "),
        ("upstreams: [{name: a_, command: [x]}]", "upstreams[0].name: "),
        ("upstreams: [{name: a, url: 'ftp://x'}]", "upstreams[0]: url must be an http:// or https:// URL"),
        ("upstreams: [{name: a, url: 'http://x', env: {A: b}}]", "upstreams[0]: env belongs to command, not to url"),
        (
            "upstreams: [{name: a, openapi: x.yaml, env: {A: b}}]",
            "upstreams[0]: env belongs to command, not to openapi",
        ),
        ("upstreams: [{name: a, openapi: x, forward: [roots]}]", "forward belongs to command and url, not to openapi"),
        ("upstreams: [{name: a, url: 'http://x', forward: [tools]}]", "forward[0]: "),
        (
            "upstreams: [{name: a, url: 'http://x', transport: sse, era: 2026-07-28}]",
            "era: the older HTTP+SSE transport has only 2025-11-25",
        ),
        ("upstreams: [{name: a, command: [x], transport: sse}]", "transport belongs to url, not to command"),
        ("upstreams: [{name: a, url: 'http://x', base_url: 'http://y'}]", "base_url belongs to openapi, not to url"),
        ("upstreams: [{name: a, openapi: 'ftp://x'}]", "upstreams[0]: openapi must be an http:// or https:// URL"),
        ("upstreams: [{name: a, openapi: x, base_url: 'https://u:p@x'}]", "upstreams[0]: base_url must be"),
        ("upstreams: [{name: a, openapi: x, base_url: 'https://x/?a=1'}]", "upstreams[0]: base_url must be"),
        ("upstreams: [{name: a, url: 'http://x', headers: {'a b': c}}]", "upstreams[0]: headers: a name may hold"),
        ('upstreams: [{name: a, url: "http://x", headers: {A: "c\\n"}}]', "upstreams[0]: headers.A: only printable"),
        (
            "upstreams: [{name: a, url: 'http://x', headers: {authorization: b}, oauth: {token_url: 'http://t', client_id: a, client_secret: b}}]",  # noqa: E501
            "two credentials for one header",
        ),
        (
            "upstreams: [{name: a, url: 'http://x', oauth: {token_url: t, client_id: a, client_secret: b}}]",
            "upstreams[0].oauth.token_url: token_url must be",
        ),
        (
            "upstreams: [{name: a, url: 'http://x', oauth: {token_url: 'http://t', client_id: a}}]",
            "upstreams[0].oauth: give client_secret, or refresh_token",
        ),
        (
            "upstreams: [{name: a, url: 'http://x', oauth: {client_id: a, client_secret: b}}]",
            "upstreams[0].oauth: give issuer too",
        ),
        (
            "upstreams: [{name: a, url: 'http://x', oauth: {authorize_params: {state: a}}}]",
            "upstreams[0].oauth: authorize_params: state cannot be set here",
        ),
        (
            "upstreams: [{name: a, url: 'http://x', oauth: {grant: client_credentials}}]",
            "upstreams[0].oauth: give client_id",
        ),
        (
            "upstreams: [{name: a, url: 'http://x', oauth: {private_key: x, auth_method: private_key_jwt}}]",
            "upstreams[0].oauth.private_key: must be the PEM",
        ),
        ("upstreams: [{name: a, openapi: 'http://x', oauth: {}}]", "oauth of an openapi service needs token_url"),
        ("access: [{match: github}]", "access[0].match: must be <namespace>:<tool>"),
        ("access: [{match: 'a:*'}, {match: 'b:*', when: 'args.x >'}]", "access[1].when: not a condition"),
        ("access: [{match: 'a:*', when: 'actr == \"x\"'}]", "access[0].when: not a condition"),
        ("access: [{match: 'a:*', when: actor}]", "access[0].when: must be true or false"),
        ("access: [{match: 'a:*', require: ['tools:*']}]", "access[0].require[0]: not one permission"),
        ("access: [{match: 'a:*', require: ['role: ']}]", "access[0].require[0]: must be caller, role:<role>"),
        (f"auth: {{keys: [{{id: a, sha256: {'0' * 64}, actor: x, permissions: ['role:dev']}}]}}", "role:dev is a role"),
        ("access: [{match: 'a:*', effect: deny, approval: always}]", "access[0]: a rule that denies or hides"),
        ("access: [{match: 'a:*', visibility: internal, when: has(args.x)}]", "access[0]: visibility cannot depend"),
        ("upstreams: [{name: a, command: [x], max_concurrent: 0}]", "upstreams[0].max_concurrent: "),
        ("storage: {max_bytes: 1000}", "storage.max_bytes: "),
        ("storage: {fail: {quotas: partial}}", "storage.fail.quotas: "),
        ("storage: {max_age_s: 0}", "storage.max_age_s: "),
        ("storage: {url: 'redis:/x'}", "storage.url: must begin with redis://"),
        ("storage: {url: 'redis://x/one'}", "storage.url: may end with the number of a database"),
        ("storage: {url: 'sqlite://x.db'}", "storage.url: needs three slashes before a relative path"),
        ("storage: {url: 'sqlite:/x.db'}", "storage.url: needs three slashes before a relative path"),
        ("storage: {url: 'sqlite:///:memory:'}", "storage.url: must be memory:// for a store in memory"),
        ("storage: {url: 'sqlite:///'}", "storage.url: must name a file"),
        ("storage: {url: 'sqlite:////'}", "storage.url: must name a file"),
        ("storage: {url: 'sqlite:///var/'}", "storage.url: must name a file"),
        ("storage: {url: 'sqlite:///x.db?mode=ro'}", "storage.url: must name a file"),
        ("a: [", "line 1, column 5: not valid YAML"),
        ("a: 2024-13-45", "a: unknown key"),
        ("a: &a [*a]", "line 1, column 8: an alias of nothing"),
        ("upstreams: [{name: a, url: 'http://[::1/mcp'}]", "upstreams[0]: url must be an http:// or https:// URL"),
        ("upstreams: [{name: a, url: 'http:///x'}]", "upstreams[0]: url must be an http:// or https:// URL"),
        ('upstreams: [{name: a, command: [x], env: {A: "\\0"}}]', "upstreams[0]: command and env must not hold NUL"),
        (
            "auth: {keys: [{id: a, sha256: &h " + "f" * 64 + ", actor: x}, {id: b, sha256: *h, actor: y}]}",
            "auth.keys: the sha256",
        ),
        ("upstreams: none", "upstreams: must be a list"),
        ("upstreams: [{name: a, command: ['${HOEM}/x']}]", "upstreams[0].command[0]: the environment variable HOEM"),
        ("upstreams: [{name: a, command: [x], timeout_s: 0}]", "upstreams[0].timeout_s: "),
        ("plugins: {security: {_global: [{handler: x, priority: 101}]}}", "plugins.security._global[0].priority: "),
        ("plugins: {auditing: {alpha: [{handler: jsonl}]}}", "auditing plugins see every call"),
        ("browse: {words: [{match: github, say: [x]}]}", "browse.words[0].match: must be <namespace>:<tool>"),
        ("browse: {words: [{match: 'a:b', say: []}]}", "browse.words[0].say: is empty"),
        ("browse: {words: [{match: 'a:b', say: [x, ' ?']}]}", "browse.words[0].say: the text 1 contains no word"),
        ("browse: {words: [{match: 'a:b', say: [" + "x" * 201 + "]}]}", "say: the text 0 has more than 200 characters"),
        ("browse: {words: [{match: 'a:b', say: [" + "x, " * 51 + "]}]}", "browse.words[0].say: has more than 50 texts"),
        ("browse: {words: [" + "{match: 'a:b', say: [x]}, " * 1_001 + "]}", "browse: words has more than 1000 entries"),
        ("browse: {words: [{match: 'a:b', say: [x]}, {match: 'a:b', say: [y]}]}", "browse: the match 'a:b' is used"),
    ],
)
def test_each_fault_is_named_by_its_field(tmp_path: Path, text: str, expected: str) -> None:
    assert expected in fault(tmp_path, text)


@requirement("OPS-56")
def test_words_of_tools_are_read_by_pattern_in_their_order(tmp_path: Path) -> None:
    words = [{"match": "a:b", "say": ["git log", "history"]}, {"match": "*:c#12345678", "say": ["時計"]}]
    settings = load(tmp_path, {"browse": {"words": words}})
    assert list(settings.browse.said().items()) == [("a:b", ("git log", "history")), ("*:c#12345678", ("時計",))]
    assert load(tmp_path, "server: {}").browse.said() == {}


@pytest.mark.parametrize(
    ("url", "file"),
    [
        ("memory://", None),
        ("sqlite:///var/wicketgate.db", Path("var/wicketgate.db")),
        ("sqlite:////var/lib/wicketgate.db", Path("/var/lib/wicketgate.db")),
    ],
)
def test_three_slashes_are_a_relative_file_and_four_an_absolute_one(url: str, file: Path | None) -> None:
    assert load_settings(None, {"WICKETGATE_STORAGE__URL": url}).storage.sqlite_file == file


@pytest.mark.parametrize(
    ("entry", "within_s"),
    [
        ({"command": ["npx", "-y", "x"]}, 60),
        ({"command": ["x"], "connect_timeout_s": 3}, 3),
        ({"url": "http://x"}, 10),
        ({"openapi": "x.yaml"}, 10),
        ({"python": "m:r", "connect_timeout_s": 90}, 90),
    ],
)
def test_a_server_that_is_started_has_longer_to_be_connected(entry: dict[str, Any], within_s: float) -> None:
    assert UpstreamSettings(name="a", **entry).connect_within_s == within_s


@requirement("OPS-3")
def test_variables_and_their_defaults_are_put_in_place_everywhere(tmp_path: Path) -> None:
    settings = load(
        tmp_path,
        "server: {port: '${PORT:-9000}'}\n"
        "upstreams:\n"
        "  - {name: a, command: ['${BIN}', '--x=${PORT:-1}${EMPTY:-}'], env: {TOKEN: '${SECRET}'}}\n",
        BIN="/bin/tool",
        SECRET="hush-hush",
    )
    (upstream,) = settings.upstreams
    assert settings.server.port == 9000
    assert upstream.command == ("/bin/tool", "--x=1")
    assert upstream.env["TOKEN"].get_secret_value() == "hush-hush"
    assert "hush-hush" not in repr(settings)
    assert set(settings.secrets()) == {"hush-hush", "/bin/tool"}


@requirement("OPS-13")
def test_what_is_named_like_a_secret_is_masked_and_what_is_not_stays_readable(tmp_path: Path) -> None:
    settings = load(
        tmp_path,
        "model:\n  {provider: openai-chat, base_url: 'http://x/v1', model: m, api_key: key-of-the-model,\n"
        "   fallbacks: [{provider: anthropic-messages, base_url: 'http://y', model: n, api_key: key-of-the-next}]}\n"
        "upstreams:\n"
        "  - {name: a, command: [x, '--key=${API_TOKEN}', '${FOLDER}'], env: {LOG_LEVEL: warning, DB_PASSWORD: pw-1}}\n"
        "  - {name: b, url: 'http://x/?k=${API_TOKEN}', headers: {Authorization: header-1}}\n"
        "  - name: c\n    openapi: x.yaml\n"
        "    oauth: {token_url: 'http://t', client_id: a, client_secret: s-1, refresh_token: r-1}\n",
        API_TOKEN="token-1",
        FOLDER="/data",
    )
    assert set(settings.secrets()) == {
        "token-1", "key-of-the-model", "key-of-the-next", "pw-1", "header-1", "/data", "s-1", "r-1",
    }  # fmt: skip


@requirement("OPS-20")
def test_a_variable_whose_sign_is_written_as_an_escape_is_put_in_place_too(tmp_path: Path) -> None:
    config = tmp_path / "wicketgate.yaml"
    config.write_text('server: {host: "\\x24{HOST}"}', encoding="utf-8")
    assert load_settings(config, {"HOST": "::1"}).server.host == "::1"


@requirement("OPS-3")
def test_a_variable_over_a_value_with_an_anchor_changes_none_that_is_an_alias_of_it(tmp_path: Path) -> None:
    text = """
    model:
      extra: {a: &options {size: 1, deep: {k: 1}}, b: *options, c: {<<: *options}}
    """
    changes = {"WICKETGATE_MODEL__EXTRA__A__SIZE": "2", "WICKETGATE_MODEL__EXTRA__C__DEEP__K": "3"}
    extra = load(tmp_path, text, **changes).model.extra
    was = {"size": 1, "deep": {"k": 1}}
    assert extra == {"a": {**was, "size": 2}, "b": was, "c": {**was, "deep": {"k": 3}}}


@requirement("ACCESS-29")
def test_keys_of_the_seal_are_a_ring_from_which_an_unset_variable_is_left_out(tmp_path: Path) -> None:
    text = "auth: {seal_keys: ['${SEAL_KEY}', '${OLD_SEAL_KEY:-}']}"
    settings = load(tmp_path, text, SEAL_KEY="n" * 32)
    assert settings.auth.ring() == ["n" * 32]
    assert "n" * 32 in set(settings.secrets())
    assert "n" * 32 not in repr(settings)
    assert load(tmp_path, text, SEAL_KEY="n" * 32, OLD_SEAL_KEY="o" * 32).auth.ring() == ["n" * 32, "o" * 32]


@requirement("ACCESS-29")
@pytest.mark.parametrize(
    ("keys", "problem"),
    [(["short-secret"], "32 random characters"), (["n" * 32, "n" * 32], "the same key twice"), ("n" * 32, "seal_keys")],
)
def test_a_ring_that_is_weak_or_repeats_itself_is_refused_without_showing_it(
    tmp_path: Path, keys: object, problem: str
) -> None:
    with pytest.raises(ConfigError, match=problem) as refused:
        load(tmp_path, f"auth: {{seal_keys: {keys}}}")
    assert "short-secret" not in str(refused.value)
    assert "nnnn" not in str(refused.value)


@pytest.mark.parametrize(
    "wrong",
    [
        {"auth": {"seal_keys": ["short-secret"]}},
        {"upstreams": [{"name": "shop", "env": {"TOKEN": "short-secret"}, "commnd": ["short-secret"]}]},
        {"model": {"provider": "openai-chat", "api_key": ["short-secret"]}},
    ],
)
def test_an_error_of_settings_made_in_python_shows_no_value(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError) as caught:
        Settings.model_validate(wrong)
    assert "short-secret" not in str(caught.value)


@requirement("OPS-3")
def test_the_environment_overrides_the_file_and_the_command_line_overrides_both(tmp_path: Path) -> None:
    text = "server: {port: 1, host: 127.0.0.2, log_level: debug}\nauth: {keys: []}"
    environ = {
        "WICKETGATE_SERVER__PORT": "9999",
        "WICKETGATE_SERVER__HOST": "127.0.0.1",
        "WICKETGATE_UPSTREAMS": "[{name: a, command: [x]}]",
        "OTHER": "x",
    }
    settings = load(tmp_path, text, **environ)
    assert (settings.server.port, settings.server.log_level) == (9999, "debug")
    assert [upstream.name for upstream in settings.upstreams] == ["a"]
    settings = load_settings(tmp_path / "wicketgate.yaml", environ, server={"port": 5})
    assert (settings.server.port, settings.server.host) == (5, "127.0.0.1")


@requirement("OPS-3")
@pytest.mark.parametrize(
    "name",
    [
        "WICKETGATE_CONFIG",
        "WICKETGATE_CONFORM_KEY",
        "WICKETGATE_SERVICE_HOST",
        "WICKETGATE_SERVICE_PORT",
        "WICKETGATE_SERVICE_PORT_HTTP",
        "WICKETGATE_PORT_8080_TCP",
        "WICKETGATE_PORT_8080_TCP_ADDR",
        "WICKETGATE_PORT",
    ],
)
def test_variables_of_other_programs_with_the_same_prefix_are_not_settings(name: str) -> None:
    assert load_settings(None, {name: "tcp://10.0.0.1:8080"}) == Settings()


@requirement("OPS-20")
def test_words_that_are_no_booleans_in_yaml_of_today_stay_words_and_switches_read_them(tmp_path: Path) -> None:
    settings = load(
        tmp_path,
        "plugins: {security: {_global: [{handler: pii_filter, config: {on: [result], action: redact}}]}}\n"
        "upstreams: [{name: a, command: [x, no, truest], enabled: off, required: yes}, {name: b, command: [y]}]\n",
    )
    assert settings.plugins.security["_global"][0].config == {"on": ["result"], "action": "redact"}
    first, second = settings.upstreams
    assert (first.command, first.enabled, first.required, second.enabled) == (("x", "no", "truest"), False, True, True)


def test_the_file_is_the_one_that_is_named_else_the_usual_one_if_it_is_there(tmp_path: Path) -> None:
    with chdir(tmp_path):
        assert find_config({}) is None
        (tmp_path / "wicketgate.yaml").mkdir()  # what a container engine makes of a mount that is not there
        assert find_config({}) is None
        (tmp_path / "wicketgate.yaml").rmdir()
        (tmp_path / "wicketgate.yaml").write_text("server: {port: 9000}\n")
        assert find_config({"WICKETGATE_CONFIG": ""}) == Path("wicketgate.yaml")
        other = tmp_path / "other.yaml"
        assert find_config({"WICKETGATE_CONFIG": str(other)}) == other, "a name is taken at its word"
        assert load_settings(None, {"WICKETGATE_CONFIG": str(other)}) == load_settings(None, {})


@requirement("OPS-2")
def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nope\.yaml"):
        load_settings(tmp_path / "nope.yaml", {})


@requirement("LIB-24")
def test_a_mapping_takes_what_a_file_takes_and_no_variable_overrides_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ZONE", "Asia/Tokyo")
    monkeypatch.setenv("WICKETGATE_SERVER__PORT", "9")
    given = {
        "server": {"port": 7},
        "mcpServers": {"time": {"command": "mcp-server-time", "args": ["--local-timezone=${ZONE}"]}},
    }
    settings = Settings.from_dict(given)
    (time,) = settings.upstreams
    assert (time.name, time.command) == ("time", ("mcp-server-time", "--local-timezone=Asia/Tokyo"))
    assert settings.server.port == 7
    assert "upstreams" not in given
    with pytest.raises(ConfigError, match=r"^Invalid configuration: mcpServers\.time\.args: must be a list"):
        Settings.from_dict({"mcpServers": {"time": {"command": "x", "args": "y"}}})


@requirement("LIB-24")
@pytest.mark.parametrize("values", [5, "x", [], {1: 2}])
def test_what_is_no_mapping_of_sections_is_refused(values: Any) -> None:
    with pytest.raises(ConfigError, match="must be a mapping of sections"):
        Settings.from_dict(values)


@requirement("LIB-24")
def test_a_program_reads_a_file_as_the_service_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "gate.yaml").write_text("server: {port: 7}\nmcp: {face: namespaced}\n")
    monkeypatch.setenv("WICKETGATE_SERVER__PORT", "9")
    settings = Settings.load(tmp_path / "gate.yaml")
    assert (settings.server.port, settings.mcp.face) == (9, "namespaced")
    with pytest.raises(ConfigError, match=r"there is no such file; wicketgate init"):
        Settings.load(tmp_path / "none.yaml")
