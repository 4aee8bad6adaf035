"""The context of a call as it is handed on."""

from dataclasses import FrozenInstanceError, replace

import pytest

from tests.support.requirement import requirement
from wicketgate.access.identity import Identity
from wicketgate.ports import CallContext


@requirement("FACE-9")
def test_a_context_with_changes_is_another_one_and_like_a_replaced_one() -> None:
    context = CallContext(Identity("ana", ()), "req_1", "session")
    changed = context.having(source="10.0.0.1", cache_stable=True)
    assert changed == replace(context, source="10.0.0.1", cache_stable=True)
    assert (context.source, changed.marks is context.marks) == ("", True)
    assert hash(changed.identity) == hash(context.identity)
    with pytest.raises(FrozenInstanceError):
        changed.source = "10.0.0.2"  # type: ignore[misc]
