"""What of the configuration the core runs by and may be exchanged while it runs, as one value."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from wicketgate.access.policy import AccessPolicy
from wicketgate.catalog.pins import PinPolicy
from wicketgate.fleet.call_policy import CallPolicy
from wicketgate.fleet.member import Member


@dataclass(frozen=True, slots=True)
class Arrangement:
    """*policies* and *inferred* go by upstream name; *per_actor* and *per_tool* are those of Quota."""

    members: Sequence[Member]
    policies: Mapping[str, CallPolicy] = field(default_factory=dict)
    inferred: Collection[str] = ()
    access: AccessPolicy = field(default_factory=AccessPolicy)
    pins: PinPolicy = field(default_factory=PinPolicy)
    per_actor: int | None = None
    per_tool: Mapping[str, int] = field(default_factory=dict)
