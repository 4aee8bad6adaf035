"""The claim of a call right before it leaves (CHAT-111)."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from tests.gateway.test_audit import OWNER, SCHEMA
from tests.support.requirement import requirement
from tests.support.runtimes import refreshed
from wicketgate.errors import ArgsInvalid, NotAdmitted, UpstreamLost, UpstreamUnavailable
from wicketgate.gateway.call_policy import CallPolicy, RetryPolicy
from wicketgate.gateway.options import RuntimeOptions, RuntimePolicies
from wicketgate.gateway.runtime import ProxyRuntime
from wicketgate.ports import CallContext
from wicketgate.upstreams.embedded import StubUpstream

STEPS = ["claimed", "sent"]


class Steps:
    """A server and a claim that write down what happened, in order."""

    def __init__(self, claimed: bool | Exception = True, failures: int = 0) -> None:
        self.steps: list[str] = []
        self._claimed = claimed
        self._failures = failures
        tool = {"name": "put", "description": "Puts.", "inputSchema": SCHEMA}
        self.upstream = StubUpstream([tool], self._answer, name="s")
        self.context = replace(OWNER, claim=self._claim)

    async def _claim(self) -> bool:
        self.steps.append("claimed")
        if isinstance(self._claimed, Exception):
            raise self._claimed
        return self._claimed

    async def _answer(self, name: str, arguments: Mapping[str, Any], context: CallContext) -> Mapping[str, Any]:
        self.steps.append("sent")
        if self.steps.count("sent") <= self._failures:
            raise UpstreamUnavailable("it never left")
        return {"content": [{"type": "text", "text": "ok"}]}

    async def execute(self, args: Mapping[str, Any], **policy: Any) -> None:
        calls = CallPolicy(retry=RetryPolicy(attempts=2, base_s=0.0), **policy)
        runtime = await refreshed(ProxyRuntime(self.upstream, RuntimeOptions(RuntimePolicies(default_call=calls))))
        await runtime.execute(next(iter(runtime.catalog().items)), args, self.context)


@requirement("CHAT-111")
async def test_a_call_is_claimed_before_it_leaves_and_once_for_all_its_attempts() -> None:
    first, again = Steps(), Steps(failures=1)
    await first.execute({"text": "hi"})
    await again.execute({"text": "hi"})
    assert first.steps == STEPS
    assert again.steps == [*STEPS, "sent"]


@requirement("CHAT-111")
async def test_what_writes_nothing_and_what_is_refused_is_not_claimed() -> None:
    reads, refused = Steps(), Steps()
    await reads.execute({"text": "hi"}, read_only=["put"])
    with pytest.raises(ArgsInvalid):
        await refused.execute({"text": 5})
    assert reads.steps == ["sent"]
    assert refused.steps == []


@requirement("CHAT-111")
@pytest.mark.parametrize(("claimed", "raised"), [(False, UpstreamLost), (NotAdmitted("not kept"), NotAdmitted)])
async def test_a_call_that_cannot_be_claimed_is_not_made(claimed: bool | Exception, raised: type[Exception]) -> None:
    steps = Steps(claimed)
    with pytest.raises(raised) as refusal:
        await steps.execute({"text": "hi"})
    assert steps.steps == ["claimed"]
    if claimed is False:
        assert "what became of it is not known" in str(refusal.value)
