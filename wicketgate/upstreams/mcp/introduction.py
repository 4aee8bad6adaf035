"""The words of a server about itself when a session begins: as much of them as the gate uses (UP-37).

Takes what the SDK's types take. These are a few of its hundreds, which nothing imports on the loop that way (OPS-376).
"""

from typing import Any

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel


class _Words(BaseModel):
    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True)


class Offer(_Words):
    """A kind of thing that a server offers, and the changes of it that it announces."""

    list_changed: bool | None = None
    subscribe: bool | None = None


class ServerCapabilities(_Words):
    """None: the server has no such thing."""

    tools: Offer | None = None
    resources: Offer | None = None
    prompts: Offer | None = None
    completions: dict[str, Any] | None = None
    extensions: dict[str, dict[str, Any]] | None = None


class _Implementation(_Words):
    name: str
    title: str | None = None
    version: str


class Initialized(_Words):
    """The result of ``initialize``."""

    protocol_version: str
    capabilities: ServerCapabilities
    server_info: _Implementation
    instructions: str | None = None


class Discovered(_Words):
    """The result of ``server/discover``."""

    supported_versions: list[str]
    capabilities: ServerCapabilities
    instructions: str | None = None
    meta: dict[str, Any] | None = Field(alias="_meta", default=None)
