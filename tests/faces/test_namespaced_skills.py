"""Skills of the namespaced face: listed, fetched and read under our URIs, behind the same rules, pins and records."""

from typing import Any

import pytest

from tests.gateway.test_skills import POISON, pinned
from tests.support.audit_memory import AuditMemory
from tests.support.requirement import requirement
from tests.support.skill_upstream import FILES, REFUNDS, SKILLS, SkillUpstream, entry_of
from wicketgate.access.identity import Identity
from wicketgate.access.policy import AccessPolicy, AccessRule
from wicketgate.catalog.pins import PinPolicy, pin_all
from wicketgate.faces.namespaced import NamespacedFace
from wicketgate.faces.namespaced_offers import NamespacedOffers
from wicketgate.faces.surface import Refusal
from wicketgate.fleet.features import FeatureFleet, ListChanged
from wicketgate.fleet.member import MultiplexUpstream
from wicketgate.gateway.audit import Attached, Auditor
from wicketgate.gateway.options import RuntimeOptions, RuntimePolicies
from wicketgate.gateway.runtime import ProxyRuntime
from wicketgate.ports import CallContext

OWNER = CallContext(Identity("owner", ("tools:*",)), "trace", "session")
SHOWN = "shop+skill://acme/refunds"


class Setting:
    def __init__(self, upstream: SkillUpstream | None = None, **policies: Any) -> None:
        self.upstream = upstream or SkillUpstream()
        self.server = self.upstream.features
        self.audited = AuditMemory()
        fleet = MultiplexUpstream([self.upstream])
        auditor = Auditor([Attached("records", self.audited)], wall_clock=lambda: 0.0)
        self.runtime = ProxyRuntime(fleet, RuntimeOptions(RuntimePolicies(**policies), auditor=auditor))
        self.face = NamespacedFace(self.runtime, fleet.statuses)
        self.fleet = FeatureFleet(
            lambda: {name: member.features for name, member in fleet.members.items() if member.features is not None},
            lambda: 0.0,
            timeout_s=30,
        )
        self.offers = NamespacedOffers(self.face, self.fleet, self.runtime, "ours")

    async def uris(self, context: CallContext = OWNER) -> list[str]:
        return [one["uri"] for one in (await self.offers.list_all("skills", context)).items]

    async def refused(self, method: str, uri: str, context: CallContext = OWNER) -> tuple[int, str]:
        with pytest.raises(Refusal) as refusal:
            await getattr(self.offers, method)({"uri": uri}, context)
        return refusal.value.code, refusal.value.message


@requirement("ROUTE-58", "ROUTE-59", "ROUTE-61")
async def test_skills_are_listed_fetched_and_read_under_our_uris() -> None:
    setting = Setting()
    assert setting.offers.extensions() == {SKILLS: {}}
    (skill,) = (await setting.offers.list_all("skills", OWNER)).items
    original = entry_of(REFUNDS, FILES)
    assert skill["uri"] == f"{SHOWN}/SKILL.md"
    assert skill["frontmatter"] == original["frontmatter"]
    assert [one["uri"] for one in skill["resources"]] == [f"{SHOWN}/SKILL.md", f"{SHOWN}/forms/A.md"]
    assert [one["digest"] for one in skill["resources"]] == [one["digest"] for one in original["resources"]]
    assert setting.server.asked == []  # no file ahead of need
    got = await setting.offers.get_skill({"uri": skill["uri"]}, OWNER)
    assert (got["skill"], got["ttlMs"], got["cacheScope"]) == (skill, 9_000, "private")
    read = await setting.offers.read_resource({"uri": f"{SHOWN}/forms/A.md"}, OWNER)
    assert read["contents"][0] == {
        "uri": f"{SHOWN}/forms/A.md",
        "mimeType": "text/markdown",
        "text": FILES["forms/A.md"],
    }
    # Skills are no tools of this face.
    await setting.runtime.refresh_catalog()
    assert setting.face.tools(OWNER) == ()


@requirement("ROUTE-61")
async def test_a_skill_in_no_list_is_fetched_from_its_server() -> None:
    setting = Setting()
    setting.server.unlisted = [entry_of("skill://hidden/way", {"SKILL.md": "x"})]
    got = await setting.offers.get_skill({"uri": "shop+skill://hidden/way/SKILL.md"}, OWNER)
    assert got["skill"]["uri"] == "shop+skill://hidden/way/SKILL.md"
    assert (got["ttlMs"], got["cacheScope"]) == (5, "private")
    assert (await setting.refused("get_skill", "shop+skill://no/such/SKILL.md"))[0] == -32602
    assert (await setting.refused("get_skill", "nowhere+skill://no/such/SKILL.md"))[0] == -32602
    strict = Setting(pins=PinPolicy({}, hold_new=True))
    strict.server.unlisted = setting.server.unlisted
    code, message = await strict.refused("get_skill", "shop+skill://hidden/way/SKILL.md")
    assert (code, "not found" in message) == (-32602, True)


@requirement("ROUTE-62")
async def test_directories_are_read_where_the_server_lists_them() -> None:
    setting = Setting()
    assert (await setting.refused("read_directory", SHOWN))[0] == -32602
    setting.server.settings = {"directoryRead": True}
    assert setting.offers.extensions() == {SKILLS: {"directoryRead": True}}
    read = await setting.offers.read_directory({"uri": SHOWN, "cursor": "c"}, OWNER)
    assert [child["uri"] for child in read["resources"]] == [f"{SHOWN}/SKILL.md", f"{SHOWN}/forms/A.md"]
    assert setting.server.asked == [("resources/directory/read", {"uri": REFUNDS, "cursor": "c"})]
    assert (await setting.refused("read_directory", f"{SHOWN}/SKILL.md"))[0] == -32602


@requirement("CARD-42", "ROUTE-59")
async def test_an_entry_that_breaks_the_rules_is_not_listed() -> None:
    setting = Setting()
    setting.server.entries.append({"uri": "skill://acme/odd/SKILL.md", "frontmatter": {"name": "odd"}})
    assert await setting.uris() == [f"{SHOWN}/SKILL.md"]
    assert (await setting.refused("get_skill", "shop+skill://acme/odd/SKILL.md"))[0] == -32602


@requirement("ACCESS-75", "ACCESS-76")
async def test_nothing_in_the_directory_of_a_held_skill_is_there() -> None:
    poisoned = entry_of(REFUNDS, {**FILES, "forms/A.md": POISON})
    setting = Setting(pins=PinPolicy(pinned(poisoned)))
    setting.server.settings = {"directoryRead": True}
    nested = f"{SHOWN}/more/SKILL.md"
    assert await setting.uris() == []
    asked = list(setting.server.asked)
    for method, uri in [
        ("get_skill", f"{SHOWN}/SKILL.md"),
        ("read_resource", f"{SHOWN}/SKILL.md"),
        ("read_resource", f"{SHOWN}/forms/A.md"),
        ("read_resource", nested),
        ("read_directory", SHOWN),
        ("subscribe", f"{SHOWN}/SKILL.md"),
    ]:
        if method == "subscribe":
            with pytest.raises(Refusal):
                await setting.offers.subscribe(uri, OWNER)
            continue
        code, message = await setting.refused(method, uri)
        assert (code, "not found" in message) == (-32602, True)
    assert setting.server.asked == asked
    # Beside it, all is as it was.
    setting.server.files["skill://acme/other.md"] = "Other."
    read = await setting.offers.read_resource({"uri": "shop+skill://acme/other.md"}, OWNER)
    assert read["contents"][0]["text"] == "Other."


@requirement("ACCESS-76", "ROUTE-63")
async def test_a_pinned_skill_gives_only_the_files_that_were_accepted_as_they_were() -> None:
    entry = entry_of(REFUNDS, FILES)
    setting = Setting(pins=PinPolicy(pinned(entry)))
    setting.server.settings = {"directoryRead": True}
    assert await setting.offers.read_resource({"uri": f"{SHOWN}/forms/A.md"}, OWNER)
    assert await setting.offers.read_directory({"uri": f"{SHOWN}/forms"}, OWNER)
    setting.server.files[f"{REFUNDS}/new.md"] = "New."
    assert (await setting.refused("read_resource", f"{SHOWN}/new.md"))[0] == -32602
    children = await setting.offers.read_directory({"uri": SHOWN}, OWNER)
    assert f"{SHOWN}/new.md" not in [child["uri"] for child in children["resources"]]
    setting.server.files[f"{REFUNDS}/forms/A.md"] = POISON
    code, message = await setting.refused("read_resource", f"{SHOWN}/forms/A.md")
    assert (code, POISON in message) == (-32004, False)


@requirement("ROUTE-63")
async def test_without_pins_the_client_finds_the_difference_and_gets_a_fresh_entry() -> None:
    setting = Setting()
    assert await setting.uris()
    setting.server.files[f"{REFUNDS}/forms/A.md"] = "Other."
    setting.server.entries = [entry_of(REFUNDS, {**FILES, "forms/A.md": "Other."})]
    listings = setting.server.listings
    read = await setting.offers.read_resource({"uri": f"{SHOWN}/forms/A.md"}, OWNER)
    assert read["contents"][0]["text"] == "Other."
    got = await setting.offers.get_skill({"uri": f"{SHOWN}/SKILL.md"}, OWNER)
    assert setting.server.listings == listings + 1
    assert got["skill"]["resources"][1]["size"] == len("Other.")


@requirement("ACCESS-77")
async def test_suspicious_words_in_a_file_are_held_here_too() -> None:
    setting = Setting(pins=PinPolicy(hold_suspicious=True))
    setting.server.entries = [entry_of(REFUNDS, {**FILES, "forms/A.md": POISON})]
    setting.server.files[f"{REFUNDS}/forms/A.md"] = POISON
    code, message = await setting.refused("read_resource", f"{SHOWN}/forms/A.md")
    assert (code, "Ignore" in message) == (-32000, False)
    assert await setting.offers.read_resource({"uri": f"{SHOWN}/SKILL.md"}, OWNER)


@requirement("ACCESS-78", "ACCESS-79")
async def test_rules_rights_and_records_are_those_of_resources_and_of_the_skill() -> None:
    rule = AccessRule("shop:skill.refunds", require=("refunds:read",))
    setting = Setting(access=AccessPolicy([rule]))
    reader = CallContext(Identity("reader", ("resources:shop", "refunds:read")), "trace", "s")
    stranger = CallContext(Identity("stranger", ("tools:shop:create_order",)), "trace", "s")
    assert await setting.uris(reader) == [f"{SHOWN}/SKILL.md"]
    assert await setting.offers.read_resource({"uri": f"{SHOWN}/SKILL.md"}, reader)
    for context in (OWNER, stranger):
        assert await setting.uris(context) == []
        for method in ("get_skill", "read_resource"):
            assert (await setting.refused(method, f"{SHOWN}/SKILL.md", context))[0] == -32602
    assert {record.operation for record in setting.audited.records} == {"read"}
    shown = [record for record in setting.audited.records if record.actor == "reader"]
    assert [record.server for record in shown] == ["shop"]


@requirement("ACCESS-75")
async def test_the_lock_covers_skills_and_a_change_is_announced() -> None:
    setting = Setting()
    declared, missing = await setting.offers._screening.declared()
    assert not missing
    assert list(pin_all(declared)["shop/skills"]) == [f"{REFUNDS}/SKILL.md"]
    heard: list[Any] = []
    setting.offers.watch(heard.append)
    setting.server.entries = []
    setting.server.tell(ListChanged("resources"))
    assert heard == [ListChanged("resources")]
    assert await setting.uris() == []


@requirement("ACCESS-76")
async def test_resources_of_a_held_skill_are_not_listed() -> None:
    policy = PinPolicy(pinned(entry_of(REFUNDS, {**FILES, "forms/A.md": POISON})))
    for pins, expected in [(policy, ["shop+demo://note"]), (PinPolicy(), ["shop+demo://note", f"{SHOWN}/SKILL.md"])]:
        setting = Setting(pins=pins)
        setting.server.resources = [{"uri": f"{REFUNDS}/SKILL.md"}, {"uri": "demo://note"}]
        listed = await setting.offers.list_all("resources", OWNER)
        assert [one["uri"] for one in listed.items] == expected


@requirement("ROUTE-64")
async def test_a_file_of_a_nested_skill_is_read_through_the_skill_that_is_accepted() -> None:
    nested = "---\nname: inner\ndescription: Inner\n---\nInner.\n"
    outer = entry_of(REFUNDS, {**FILES, "inner/SKILL.md": nested})
    inner = entry_of(f"{REFUNDS}/inner", {"SKILL.md": nested}, "Inner")
    for accepted in (outer, inner):
        setting = Setting(pins=PinPolicy(pinned(accepted), hold_new=True))
        setting.server.entries = [outer, inner]
        setting.server.files[f"{REFUNDS}/inner/SKILL.md"] = nested
        assert len(await setting.uris()) == 1
        assert await setting.offers.read_resource({"uri": f"{SHOWN}/inner/SKILL.md"}, OWNER)


@requirement("ACCESS-76", "ROUTE-61")
async def test_a_held_skill_inside_an_accepted_one_gives_its_file_and_no_entry() -> None:
    nested = "---\nname: inner\ndescription: Inner\n---\nInner.\n"
    outer = entry_of(REFUNDS, {**FILES, "inner/SKILL.md": nested})
    setting = Setting(pins=PinPolicy(pinned(outer), hold_new=True))
    setting.server.entries = [outer, entry_of(f"{REFUNDS}/inner", {"SKILL.md": nested}, "Inner")]
    setting.server.files[f"{REFUNDS}/inner/SKILL.md"] = nested
    assert await setting.offers.read_resource({"uri": f"{SHOWN}/inner/SKILL.md"}, OWNER)
    code, message = await setting.refused("get_skill", f"{SHOWN}/inner/SKILL.md")
    assert (code, "not found" in message) == (-32602, True)
