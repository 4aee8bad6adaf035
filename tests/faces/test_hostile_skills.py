"""Skills of servers that mean ill, and clients that ask for the skills that rules keep from them by other spellings."""

import asyncio
import time
from typing import Any

import pytest

from tests.faces.test_namespaced_skills import OWNER, SHOWN, Setting
from tests.gateway.test_skills import POISON, pinned, runtime_of
from tests.support.requirement import requirement
from tests.support.skill_upstream import FILES, MAIN, REFUNDS, SkillUpstream, entry_of
from wicketgate.access.identity import Identity
from wicketgate.access.policy import AccessPolicy, AccessRule
from wicketgate.catalog.pins import PinPolicy
from wicketgate.catalog.skills import SkillMismatch, checked_file, read_skill
from wicketgate.errors import ArgsInvalid, CatalogError
from wicketgate.ports import CallContext

READER = CallContext(Identity("reader", ("tools:shop:skill.made",)), "trace", "session")
MADE = "---\nname: made\ndescription: Made up\n---\nText.\n"


def dynamic(root: str, description: str) -> dict[str, Any]:
    return {
        "uri": f"{root}/SKILL.md",
        "frontmatter": {"name": root.rpartition("/")[2], "description": description},
        "resources": "dynamic",
    }


@requirement("ROUTE-65")
@pytest.mark.parametrize(
    "path",
    [
        "../refunds/SKILL.md",
        "x/../../refunds/SKILL.md",
        "%2e%2e/refunds/SKILL.md",
        "%252e./refunds/SKILL.md",
        "..\\refunds\\SKILL.md",
        "./SKILL.md",
        "a//b.md",
        "/etc/passwd",
        "SKILL.md?x",
        "SKILL.md#x",
        ".\n./refunds/SKILL.md",
        "a/" * 600 + "b.md",
        "",
    ],
)
async def test_a_dynamic_skill_gives_nothing_outside_its_directory(path: str) -> None:
    upstream = SkillUpstream()
    upstream.features.entries.append(dynamic("skill://acme/made", "Made up"))
    upstream.features.files["skill://acme/made/SKILL.md"] = MADE
    runtime = await runtime_of(upstream)
    (tool_id,) = (one for one in runtime.catalog().items if "skill.made" in one)
    assert await runtime.call(tool_id, {"file": "SKILL.md"}, READER)
    with pytest.raises(ArgsInvalid):
        await runtime.call(tool_id, {"file": path}, READER)
    assert [params["uri"] for _, params in upstream.features.asked] == ["skill://acme/made/SKILL.md"]


@requirement("ROUTE-65")
@pytest.mark.parametrize("path", ["../x.md", "a/../x.md", "%2E%2e/x.md", "a//b", "a\\b", "x" * 2000, ".\t./b"])
def test_an_entry_with_a_file_outside_its_directory_is_no_skill(path: str) -> None:
    entry = entry_of(REFUNDS, {**FILES, path: "x"})
    with pytest.raises(CatalogError, match="path"):
        read_skill(entry)
