"""Plugins as they are configured, built in and of third parties (ROUTE-24)."""

from collections.abc import Callable
from importlib.metadata import EntryPoint, EntryPoints
from typing import Any, ClassVar

import pytest

from tests.support.requirement import requirement
from wicketgate.config import plugins
from wicketgate.config.plugins import make_plugin_chain
from wicketgate.config.settings import PluginsSettings
from wicketgate.errors import ConfigError
from wicketgate.plugin_api import SecurityPlugin
from wicketgate.plugins.rewriting import ToolManager


class ThirdParty(SecurityPlugin):
    """A plugin as a package of others would bring it."""


class CannotStart(SecurityPlugin):
    def __init__(self, config: Any) -> None:
        raise OSError("/secret/model.bin")


class FromTheFuture(SecurityPlugin):
    api_version: ClassVar[int] = 99


def chain(**kinds: Any) -> Any:
    return make_plugin_chain(PluginsSettings.model_validate(kinds), lambda: 0.0)


def test_without_plugins_there_is_no_chain() -> None:
    assert chain() is None
    assert chain(middleware={"alpha": [{"handler": "call_trace", "enabled": False}]}) is None


def test_a_built_in_plugin_gets_its_place_and_its_configuration() -> None:
    entry = {"handler": "tool_manager", "priority": 5, "critical": False, "config": {"tools": ["echo"]}}
    (installed,) = chain(middleware={"alpha": [entry]}).for_server("alpha")
    assert (installed.handler, installed.priority, installed.critical) == ("tool_manager", 5, False)
    assert isinstance(installed.plugin, ToolManager)
    assert installed.plugin.config.tools[0].tool == "echo"


@requirement("ROUTE-24")
@pytest.mark.parametrize(
    ("kinds", "expected"),
    [
        (
            {"middleware": {"_global": [{"handler": "tool_manager", "config": {"tools": []}}]}},
            "cannot be under _global",
        ),
        ({"middleware": {"a": [{"handler": "tool_manger"}]}}, "plugins.middleware.a[0].handler: no plugin is called"),
        ({"security": {"a": [{"handler": "call_trace"}]}}, "belongs under plugins.middleware"),
        ({"middleware": {"a": [{"handler": "call_trace", "config": {"x": 1}}]}}, "config.x: unknown key"),
        ({"middleware": {"a": [{"handler": "tool_manager", "config": {"tools": [5]}}]}}, ".config.tools[0]: "),
    ],
)
def test_a_mistake_is_reported_with_its_place(kinds: dict[str, Any], expected: str) -> None:
    with pytest.raises(ConfigError) as refused:
        chain(**kinds)
    assert expected in str(refused.value)


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Pretends that a package with an entry point of this value is installed; the lookup itself is the real one."""

    def install(value: str) -> None:
        found = EntryPoints([EntryPoint("theirs", value, plugins.ENTRY_POINTS)])
        monkeypatch.setattr(plugins, "entry_points", lambda **wanted: found.select(**wanted))

    return install


@requirement("ROUTE-25")
def test_a_plugin_of_a_third_party_is_found_by_its_entry_point(installed: Callable[[str], None]) -> None:
    installed(f"{__name__}:ThirdParty")
    (found,) = chain(security={"_global": [{"handler": "theirs"}]}).for_server("any")
    assert isinstance(found.plugin, ThirdParty)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (f"{__name__}:FromTheFuture", "version 99"),
        (f"{__name__}:CannotStart", "plugins.security._global[0]: 'theirs' cannot start"),
        (f"{__name__}:chain", "is not a plugin class"),
        ("no_such_module_here:X", "cannot be imported"),
    ],
)
def test_a_plugin_that_cannot_work_stops_the_start(installed: Callable[[str], None], value: str, expected: str) -> None:
    installed(value)
    with pytest.raises(ConfigError) as refused:
        chain(security={"_global": [{"handler": "theirs"}]})
    assert expected in str(refused.value)


@requirement("ROUTE-25")
def test_a_name_that_two_packages_claim_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    found = EntryPoints([EntryPoint("theirs", f"{module}:X", plugins.ENTRY_POINTS) for module in ("a", "b")])
    monkeypatch.setattr(plugins, "entry_points", lambda **wanted: found.select(**wanted))
    with pytest.raises(ConfigError, match="several packages provide a plugin 'theirs'"):
        chain(security={"_global": [{"handler": "theirs"}]})


def test_what_is_configured_is_listed_in_the_order_in_which_it_runs() -> None:
    settings = PluginsSettings.model_validate(
        {
            "security": {"_global": [{"handler": "pii_filter"}, {"handler": "secrets_filter", "priority": 10}]},
            "middleware": {"alpha": [{"handler": "call_trace", "critical": False}]},
            "auditing": {"_global": [{"handler": "audit_csv", "config": {"path": "/secret/a.csv"}}]},
        }
    )
    assert list(plugins.plugin_lines(settings)) == [
        "plugin: _global: secrets_filter (security, priority 10)",
        "plugin: _global: pii_filter (security, priority 50)",
        "plugin: alpha: call_trace (middleware, priority 50, not critical)",
        "audit: audit_csv",
    ]
