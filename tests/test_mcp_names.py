"""Our names of the protocol and our readings of what servers say are the SDK's."""

from typing import Any

import mcp_types
from hypothesis import given
from hypothesis import strategies as st
from mcp_types import version
from pydantic import ValidationError

from tests.support.requirement import requirement
from wicketgate import mcp_names
from wicketgate.upstreams.mcp.eras import Discovered, Initialized


@requirement("OPS-376")
def test_every_name_is_the_one_of_the_sdk() -> None:
    ours = {name: value for name, value in vars(mcp_names).items() if name.isupper()}
    assert len(ours) >= 18
    theirs = {name: getattr(version if "VERSIONS" in name or "LATEST" in name else mcp_types, name) for name in ours}
    assert ours == theirs


_ODD: st.SearchStrategy[Any] = st.sampled_from([None, True, "true", 0, 2, "x", [], {}])
_LISTS = st.fixed_dictionaries({}, optional={"listChanged": _ODD, "list_changed": _ODD, "subscribe": _ODD})
_CAPABILITIES = st.fixed_dictionaries(
    {},
    optional={
        "tools": _LISTS | _ODD,
        "resources": _LISTS | _ODD,
        "prompts": _LISTS | _ODD,
        "completions": _ODD,
        "extensions": st.dictionaries(st.sampled_from("ab"), _ODD, max_size=2) | _ODD,
        "x": _ODD,
    },
)
_RESULTS = st.fixed_dictionaries(
    # The gate asks for no name of a server, nor for a right ``_meta`` of its handshake.
    {"serverInfo": st.just({"name": "s", "version": "1"})},
    optional={
        "protocolVersion": st.just("2025-11-25") | _ODD,
        "supportedVersions": st.lists(st.just("2026-07-28") | _ODD, max_size=2) | _ODD,
        "capabilities": _CAPABILITIES | _ODD,
        "instructions": _ODD,
        "_meta": _ODD,
    },
)


def _read(model: Any, result: dict[str, Any]) -> Any:
    try:
        return model.model_validate(result)
    except ValidationError:
        return None


@requirement("OPS-376")
@given(_RESULTS)
def test_what_a_server_says_of_itself_is_read_as_the_sdk_reads_it(result: dict[str, Any]) -> None:
    pairs = [(Initialized, mcp_types.InitializeResult), (Discovered, mcp_types.DiscoverResult)]
    for ours, theirs in pairs:
        said = {name: value for name, value in result.items() if ours is Discovered or name != "_meta"}
        own, other = _read(ours, said), _read(theirs, said)
        assert (own is None) == (other is None)
        if own is None:
            continue
        assert own.instructions == other.instructions
        if ours is Initialized:
            assert own.protocol_version == other.protocol_version
        else:
            assert (own.supported_versions, own.meta) == (other.supported_versions, other.meta)
        can, could = own.capabilities, other.capabilities
        assert can.extensions == could.extensions
        assert (can.completions is None) == (could.completions is None)
        for kind in ("tools", "resources", "prompts"):
            one, another = getattr(can, kind), getattr(could, kind)
            assert (one is None) == (another is None)
            if one is not None:
                assert one.list_changed == another.list_changed
        if can.resources is not None:
            assert can.resources.subscribe == could.resources.subscribe
