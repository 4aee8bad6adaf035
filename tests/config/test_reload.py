"""A reload exchanges the configuration in force in one step, or leaves it as it was (OPS-7 to OPS-9)."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from tests.support.requirement import requirement
from tests.support.until import until
from wicketgate.access.identity import Identity
from wicketgate.catalog.pins import pin_all
from wicketgate.catalog.written_words import ToolSaid
from wicketgate.config import reload as module
from wicketgate.config.lock_file import write_lock
from wicketgate.config.reload import Applied, Changes, Reloader
from wicketgate.config.settings import Settings, UpstreamSettings
from wicketgate.config.upstreams import guarded, upstream_limits
from wicketgate.config.words_file import write_words
from wicketgate.errors import ConfigError, Forbidden, HydrateFailed, RateLimited, UpstreamLost
from wicketgate.fleet.member import Member, MultiplexUpstream
from wicketgate.gateway.lifecycle import Lifecycle
from wicketgate.gateway.runtime import ProxyRuntime
from wicketgate.ports import CallContext
from wicketgate.upstreams.embedded import StubUpstream

CONTEXT = CallContext(Identity("owner_1", ("*",)), "trace-1", "s")
BOUND_S = 30.0


class Server(StubUpstream):
    """Has one tool, named after the first word of its command; its calls wait for *release*."""

    def __init__(self, settings: UpstreamSettings) -> None:
        tool = {"name": settings.command[0], "inputSchema": {"type": "object"}}
        super().__init__([tool], self._answer, name=settings.name)
        self.release = asyncio.Event()
        self.release.set()
        self.supervised = 0
        self.ended = asyncio.Event()

    async def supervise(self, changed: Callable[[str], None]) -> None:
        self.supervised += 1
        try:
            await super().supervise(changed)
        finally:
            self.ended.set()

    async def _answer(self, name: str, arguments: Mapping[str, Any], context: CallContext) -> Mapping[str, Any]:
        await self.release.wait()
        return {"content": [{"type": "text", "text": name}]}


class House:
    """The parts that a reload changes, and every server that was made, newest last."""

    def __init__(self, settings: Settings) -> None:
        self.made: list[Server] = []
        self.fleet = MultiplexUpstream([self.make(upstream) for upstream in settings.upstreams])
        self.runtime = ProxyRuntime(self.fleet)
        self.lifecycle = Lifecycle(self.fleet, self.runtime, start_deadline_s=BOUND_S)
        self.applied = Applied(settings, self.runtime, self.fleet, self.lifecycle, self.make)

    def make(self, settings: UpstreamSettings) -> Member:
        server = Server(settings)
        self.made.append(server)
        return guarded(server, upstream_limits(settings))

    def tools(self) -> list[str]:
        return sorted(f"{item.namespace}:{item.name}" for item in self.runtime.catalog().items.values())

    async def call(self, tool: str) -> None:
        (tool_id,) = (i.id for i in self.runtime.catalog().items.values() if f"{i.namespace}:{i.name}" == tool)
        await self.runtime.execute(tool_id, {}, CONTEXT)


def settings(*upstreams: dict[str, Any], **sections: Any) -> Settings:
    return Settings.model_validate({"upstreams": upstreams, **sections})


def one(name: str, tool: str = "go", **more: Any) -> dict[str, Any]:
    return {"name": name, "command": [tool], **more}


@asynccontextmanager
async def running(first: Settings) -> AsyncIterator[House]:
    house = House(first)
    async with asyncio.timeout(BOUND_S * 2), house.lifecycle.running():
        await house.lifecycle.wait_ready()
        yield house


KEY = {"id": "a", "sha256": "a" * 64, "actor": "ann"}


@requirement("OPS-420")
@pytest.mark.parametrize(
    ("sections", "upstreams", "line"),
    [
        ({"auth": {"keys": [{**KEY, "suspended": True}]}, "access": [{"match": "a:*"}]}, ["a"], "auth; access"),
        ({"auth": {"keys": [KEY]}, "quota": {"per_actor": 5}}, ["c"], "quota; upstreams: c added, a removed"),
    ],
)
async def test_a_reload_logs_what_changed(
    sections: dict[str, Any], upstreams: list[str], line: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "wicketgate.configuration")
    async with running(settings(one("a"), auth={"keys": [KEY]})) as house:
        await house.applied.apply(settings(*map(one, upstreams), **sections))
    assert caplog.messages[-1] == f"configuration applied: {line}"


@requirement("ACCESS-19", "OPS-9")
async def test_pins_accepted_meanwhile_take_effect_at_a_reload(tmp_path: Path) -> None:
    lock = tmp_path / "x.lock"
    pinned = settings(one("a"), pins={"file": str(lock), "new_tools": "quarantine"})
    async with running(settings(one("a"))) as house:
        with pytest.raises(ConfigError, match=r"pins\.file: there is no"):
            await house.applied.apply(pinned)
        assert house.tools() == ["a:go"]
        write_lock(lock, {})
        await house.applied.apply(pinned)
        assert house.tools() == []
        write_lock(lock, pin_all(house.runtime.declared()))
        await house.applied.apply(pinned)
        assert house.tools() == ["a:go"]
        assert len(house.made) == 1, "the session is kept"


@requirement("OPS-7", "OPS-9")
async def test_upstreams_come_and_go_and_those_that_stay_keep_their_sessions() -> None:
    async with running(settings(one("a"), one("b"))) as house:
        a, b = house.made
        changes = await house.applied.apply(settings(one("b"), one("c")))
        assert changes == Changes(added=("c",), removed=("a",))
        assert house.tools() == ["b:go"], "the tools of a are gone at once"
        await until(lambda: house.tools() == ["b:go", "c:go"])
        await house.call("c:go")
        async with asyncio.timeout(BOUND_S):
            await a.ended.wait()
        assert (b.supervised, b.ended.is_set(), len(house.made)) == (1, False, 3)


@requirement("OPS-9")
async def test_a_tool_of_a_removed_upstream_leaves_the_catalog_in_the_step_in_which_it_becomes_uncallable() -> None:
    async with running(settings(one("a"), one("b"))) as house:
        seen: list[bool] = []
        house.applied.on_apply(lambda _: seen.append("a" in house.fleet.members or "a:go" in house.tools()))
        gone = next(item.id for item in house.runtime.catalog().items.values() if item.namespace == "a")
        await house.applied.apply(settings(one("b")))
        assert seen == [False]
        with pytest.raises(HydrateFailed):
            await house.runtime.execute(gone, {}, CONTEXT)


async def test_a_changed_upstream_is_made_anew_after_the_old_one_has_ended() -> None:
    async with running(settings(one("a"), one("b"))) as house:
        old = house.made[0]
        old.release.clear()
        running_call = asyncio.create_task(house.call("a:go"))
        await until(lambda: bool(old.calls))
        changes = await house.applied.apply(settings(one("a", "other"), one("b")))
        assert changes == Changes(changed=("a",))
        new = house.made[-1]
        assert house.tools() == ["a:go", "b:go"], "its tools stay until it gives others"
        assert not new.supervised
        old.release.set()
        await running_call
        await until(lambda: house.tools() == ["a:other", "b:go"])
        assert old.ended.is_set()


async def test_an_upstream_that_comes_back_waits_for_the_end_of_its_former_session() -> None:
    async with running(settings(one("a"))) as house:
        old = house.made[0]
        old.release.clear()
        running_call = asyncio.create_task(house.call("a:go"))
        await until(lambda: bool(old.calls))
        await house.applied.apply(settings())
        await house.applied.apply(settings(one("a")))
        await house.applied.apply(settings(one("a"), one("b")))
        await until(lambda: house.tools() == ["b:go"])
        assert not house.made[1].supervised
        old.release.set()
        await running_call
        await until(lambda: house.tools() == ["a:go", "b:go"])
        assert (old.supervised, house.made[1].supervised) == (1, 1)


@requirement("OPS-9")
async def test_a_call_that_outlives_the_drain_is_ended_with_a_clear_error() -> None:
    async with running(settings(one("a"), server={"drain_s": 0.01})) as house:
        house.made[0].release.clear()
        running_call = asyncio.create_task(house.call("a:go"))
        await until(lambda: bool(house.made[0].calls))
        await house.applied.apply(settings())
        with pytest.raises(UpstreamLost, match="taken out of service"):
            await running_call
        assert house.tools() == []


@requirement("OPS-8")
async def test_settings_of_single_calls_are_applied_without_a_new_session() -> None:
    first = settings(one("a"))
    async with running(first) as house:
        changes = await house.applied.apply(
            settings(
                one("a", timeout_s=5, max_concurrent=1),
                quota={"per_actor": 2},
                access=[{"match": "a:*", "require": ["tools:admin"]}],
            )
        )
        assert changes == Changes(adjusted=("a",))
        assert len(house.made) == 1
        with pytest.raises((Forbidden, HydrateFailed)):
            await house.runtime.execute(
                next(iter(house.runtime.catalog().items)), {}, CallContext(Identity("x", ("tools:a:*",)), "t", "s")
            )
        house.made[0].release.clear()
        first_call = asyncio.create_task(house.call("a:go"))
        await until(lambda: bool(house.made[0].calls))
        second_call = asyncio.create_task(house.call("a:go"))
        await until(lambda: house.fleet.members["a"].state().queued == 1)
        with pytest.raises(RateLimited) as spent:
            await house.call("a:go")
        assert (spent.value.details or {})["scope"] == "actor"
        house.made[0].release.set()
        await asyncio.gather(first_call, second_call)


@requirement("OPS-7")
async def test_a_reload_is_announced_if_it_can_change_what_callers_see_and_otherwise_not() -> None:
    def with_rule(when: str, **sections: Any) -> Settings:
        return settings(one("a"), access=[{"match": "a:*", "when": when, "effect": "deny"}], **sections)

    def with_key(*permissions: str, actor: str = "ada", sha256: str = "0" * 64, **more: Any) -> Settings:
        keys = [{"id": "k", "sha256": sha256, "actor": actor, "permissions": permissions, **more}]
        return with_rule("actor == 'bob'", auth={"keys": keys})

    async with running(settings(one("a"))) as house:
        catalog, access = list[None](), list[None]()
        house.runtime.changes.watch(lambda: catalog.append(None))
        house.runtime.changes.watch_access(lambda: access.append(None))
        announced: list[int] = []
        for wanted in (
            with_rule("actor == 'ada'"),  # other rules
            with_rule("actor == 'ada'"),  # the same rules
            with_rule("actor == 'ada'", quota={"per_actor": 2}),  # nothing that can be seen
            with_rule("actor == 'bob'"),  # another condition
            with_key("tools:*"),  # a new key
            with_key("tools:a:*"),  # a key with other permissions
            with_key("tools:a:*", actor="bob"),  # a key of another actor
            with_key("tools:a:*", actor="bob", sha256="1" * 64),  # another key
            with_key("tools:a:*", actor="bob", sha256="1" * 64, roles=["lead"]),  # other roles
        ):
            await house.applied.apply(wanted)
            announced.append(len(access))
            access.clear()
    assert announced == [1, 0, 0, 1, 0, 1, 1, 0, 1]
    assert catalog == [], "the tools are those that they were"


@requirement("ACCESS-50", "OPS-9")
async def test_another_access_default_takes_effect_at_once_and_clients_are_notified() -> None:
    async with running(settings(one("a"))) as house:
        changed = list[None]()
        house.runtime.changes.watch_access(lambda: changed.append(None))
        await house.call("a:go")
        closed = await house.applied.apply(settings(one("a"), access_default="deny"))
        assert (closed.waiting, len(changed)) == ((), 1)
        with pytest.raises(HydrateFailed):
            await house.call("a:go")
        await house.applied.apply(settings(one("a"), access=[{"match": "a:go"}], access_default="deny"))
        await house.call("a:go")


@requirement("CARD-31", "OPS-9")
async def test_a_disabled_upstream_keeps_its_name_from_others() -> None:
    raw = one("raw", "pyt.echo", namespace="infer")
    async with running(settings(raw)) as house:
        await house.applied.apply(settings(raw, one("pyt", enabled=False)))
        assert house.tools() == []
        await house.applied.apply(settings(raw))
        assert house.tools() == ["pyt:echo"]


@requirement("OPS-8")
async def test_a_configuration_that_cannot_be_applied_leaves_everything_as_it_was() -> None:
    keys = [{"id": "k", "sha256": "0" * 64, "actor": "x"}]
    first = settings(one("a"), server={"host": "0.0.0.0"}, auth={"keys": keys})
    async with running(first) as house:
        with pytest.raises(ConfigError, match=r"auth\.keys"):
            await house.applied.apply(settings(one("b")))
        assert (house.applied.settings, house.tools(), len(house.made)) == (first, ["a:go"], 1)

    # With a file for the key that the service made itself, others may reach it without configured keys.
    async with running(settings(server={"host": "0.0.0.0"}, auth={"key_file": "key.json"})) as house:
        await house.applied.apply(settings(one("a"), server={"host": "0.0.0.0"}, auth={"key_file": "key.json"}))
        assert list(house.fleet.members) == ["a"]

    # Two upstreams whose tools name the same namespace by themselves, once that is asked for.
    colliding = [one("a", "x.go"), one("b", "x.go")]
    async with running(settings(*colliding)) as house:
        before = house.tools()
        with pytest.raises(ConfigError, match="two tools have the id"):
            await house.applied.apply(settings(*({**upstream, "namespace": "infer"} for upstream in colliding)))
        assert house.tools() == before
        assert len(house.fleet.members) == 2


@requirement("OPS-8")
async def test_settings_that_need_a_restart_are_named_and_the_rest_is_applied(caplog: pytest.LogCaptureFixture) -> None:
    async with running(settings(one("a"))) as house:
        wanted = settings(
            one("a"),
            one("b"),
            server={"port": 9, "log_level": "debug"},
            storage={"max_age_s": 1.0},
            model={"context_tokens": 5_000},
        )
        changes = await house.applied.apply(wanted)
        assert changes.added == ("b",)
        assert set(changes.waiting) == {"server.port", "storage.max_age_s", "model.context_tokens"}
        assert "take effect after a restart: server.port, model.context_tokens, storage.max_age_s" in caplog.text
        assert house.applied.settings.server.port == 8080
        assert house.applied.settings.server.log_level == "debug"
        again = await house.applied.apply(wanted)
        assert again.waiting == changes.waiting, "named again as long as it waits"


@requirement("OPS-55")
async def test_the_scope_of_learning_follows_a_reload() -> None:
    async with running(settings(one("a"))) as house:
        changes = await house.applied.apply(settings(one("a"), browse={"learn": "all"}))
        assert changes == Changes()
        assert house.applied.settings.browse.learn == "all"
        with pytest.raises(ValidationError, match="learn"):
            settings(one("a"), browse={"learn": "everybody"})


async def test_an_upstream_passed_in_beside_the_configuration_stays() -> None:
    async with running(settings(one("a"))) as house:
        house.applied.settings = settings()
        changes = await house.applied.apply(settings(one("b")))
        assert changes == Changes(added=("b",))
        await until(lambda: house.tools() == ["a:go", "b:go"])


async def test_a_disabled_upstream_counts_as_removed() -> None:
    async with running(settings(one("a"), one("b"))) as house:
        assert (await house.applied.apply(settings(one("a", enabled=False), one("b")))).removed == ("a",)
        assert house.tools() == ["b:go"]
        assert (await house.applied.apply(settings(one("a"), one("b")))).added == ("a",)
        await until(lambda: house.tools() == ["a:go", "b:go"])


@requirement("OPS-9")
async def test_an_upstream_that_is_removed_while_it_lists_leaves_nothing_behind() -> None:
    async with running(settings(one("b"))) as house:
        gate, listing = asyncio.Event(), asyncio.Event()

        class Slow(Server):
            async def list_tools(self) -> Any:
                listing.set()
                await gate.wait()
                return await super().list_tools()

        house.applied._make = lambda settings: guarded(Slow(settings))
        await house.applied.apply(settings(one("a"), one("b")))
        await listing.wait()
        (refreshing,) = (task for task in asyncio.all_tasks() if task.get_name() == "refreshing a")
        await house.applied.apply(settings(one("b")))
        gate.set()
        await refreshing  # the late listing has had its effect, if it has one
        assert house.tools() == ["b:go"]
        assert house.runtime.troubles() == {}


class Service:
    """Counts applications; the next load raises *trouble* if it is set."""

    def __init__(self) -> None:
        self.applied = 0
        self.applying = asyncio.Event()
        self.trouble: Exception | None = None
        self.gate = asyncio.Event()
        self.gate.set()

    def load(self) -> Settings:
        if self.trouble is not None:
            raise self.trouble
        return Settings()

    async def apply(self, settings: Settings) -> None:
        self.applying.set()
        await self.gate.wait()
        self.applied += 1

    async def ready(self) -> None:
        return

    async def count(self, applied: int) -> None:
        await until(lambda: self.applied == applied)


async def test_requests_that_come_meanwhile_are_one_more_and_none_is_lost() -> None:
    service = Service()
    reloader = Reloader(service.load, service.apply, ready=service.ready)
    async with reloader.running():
        service.gate.clear()
        reloader.request()
        await service.applying.wait()
        for _ in range(5):
            reloader.request()
        service.gate.set()
        await service.count(2)


@requirement("OPS-8")
async def test_a_broken_file_is_one_line_in_the_log_and_the_next_good_one_is_applied(
    caplog: pytest.LogCaptureFixture,
) -> None:
    service = Service()
    reloader = Reloader(service.load, service.apply, ready=service.ready)
    async with reloader.running():
        for trouble in (ConfigError("a: wrong\nb: wrong too"), RuntimeError("unexpected")):
            service.trouble = trouble
            caplog.clear()
            reloader.request()
            await until(lambda: bool(caplog.records))
            assert "not applied, the previous one stays in force" in caplog.text
        service.trouble = ConfigError("a: wrong\nb: wrong too")
        caplog.clear()
        reloader.request()
        await until(lambda: bool(caplog.records))
        assert [record.getMessage() for record in caplog.records] == [
            "configuration not applied, the previous one stays in force: a: wrong; b: wrong too"
        ]
        service.trouble = None
        reloader.request()
        await service.count(1)


@requirement("OPS-7")
async def test_a_watched_file_counts_when_it_was_written_replaced_or_came_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_LOOK_EVERY_S", 0.005)
    file, service = tmp_path / "x.yaml", Service()
    file.write_text("a")
    reloader = Reloader(service.load, service.apply, ready=service.ready, watched=file)
    file.write_text("changed before the first look")
    async with reloader.running():
        await service.count(1)
        (tmp_path / "y.yaml").write_text("b")
        (tmp_path / "y.yaml").replace(file)
        await service.count(2)
        file.unlink()
        file.write_text("longer than before")
        await service.count(3)


@requirement("OPS-56", "OPS-468")
async def test_words_of_tools_take_effect_at_a_reload_without_a_restart(tmp_path: Path) -> None:
    def said(*words: str) -> Settings:
        return settings(one("a"), one("b"), browse={"words": [{"match": "a:go", "say": words}]} if words else {})

    async with running(settings(one("a"), one("b"))) as house:

        async def found(query: str) -> list[str]:
            return [
                card.id.partition("#")[0] for card in (await house.runtime.browse_query(query, context=CONTEXT)).cards
            ]

        assert await found("wombat") == []
        changes = await house.applied.apply(said("wombat"))
        assert (changes, await found("wombat")) == (Changes(), ["a:go"])
        await house.applied.apply(said("quokka"))
        assert (await found("wombat"), await found("quokka")) == ([], ["a:go"])
        await house.applied.apply(settings(one("a"), one("c"), **said("quokka").model_dump(include={"browse"})))
        assert await found("quokka") == ["a:go"], "upstreams change in the same step"
        await house.applied.apply(said())
        assert await found("quokka") == []
        # Those of a model, by the definition.
        (item,) = (item for item in house.runtime.catalog().items.values() if item.server == "a")
        words = {item.digest: ToolSaid("a:go", "numbat"), "0" * 64: ToolSaid("b:go", "numbat")}
        write_words(tmp_path / "words", words)
        await house.applied.apply(settings(one("a"), one("b"), browse={"words_file": str(tmp_path / "words")}))
        assert await found("numbat") == ["a:go"]
        assert [each.supervised for each in house.made[:1]] == [1], "the session is kept"
