"""The gate as the client of the suite's scenarios of skills."""

import pytest

from conformance.connector import load_skills
from tests.support.requirement import requirement
from tests.support.skill_upstream import FILES, REFUNDS, SkillUpstream, entry_of
from wicketgate.upstreams.embedded import StubUpstream

FORM = "forms/A.md"


def read(upstream: SkillUpstream) -> list[str]:
    return [params["uri"] for _, params in upstream.features.asked]


@requirement("OPS-155")
async def test_skills_are_listed_without_a_read_and_loaded_whole() -> None:
    upstream = SkillUpstream()
    await load_skills(upstream, None)
    assert read(upstream) == []
    await load_skills(upstream, FORM)
    assert read(upstream) == [f"{REFUNDS}/SKILL.md", f"{REFUNDS}/{FORM}"]


@requirement("OPS-155")
async def test_after_a_file_that_is_refused_no_other_is_read() -> None:
    upstream = SkillUpstream()
    upstream.features.entries = [entry_of(REFUNDS, {**FILES, "SKILL.md": "other"})]
    await load_skills(upstream, FORM)
    assert read(upstream) == [f"{REFUNDS}/SKILL.md"]


@requirement("OPS-155")
async def test_a_server_that_lists_no_skill_judges_nothing() -> None:
    with pytest.raises(RuntimeError, match="no skill was listed"):
        await load_skills(StubUpstream([], name="shop"), FORM)
