"""What is in force at one moment: a catalog, where it came from, and what is known of it for each audience."""

from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from wicketgate.access.identity import Identity
from wicketgate.access.policy import AccessPolicy, Rights
from wicketgate.catalog.catalog import Catalog
from wicketgate.catalog.pins import Screened
from wicketgate.fleet.multiplex import Listing
from wicketgate.schemas.validation import Validator

_MAX_AUDIENCES = 256


@dataclass(frozen=True, slots=True)
class Audience:
    """Who has the same rights. *visible* is None when they cover every tool. *definition_chars*: how long the
    definitions of all that is visible are, which a prompt is spared."""

    visible: Callable[[str], bool] | None
    definition_chars: int


class Snapshot:
    """*troubles* says by upstream why its tools are not fresh: it did not give them, or they collided with others.
    *listings* are as the upstreams declared them; *screened* says what of them was held back."""

    def __init__(
        self,
        catalog: Catalog,
        listings: Mapping[str, Listing],
        troubles: Mapping[str, str],
        screened: Mapping[str, Screened] | None = None,
    ) -> None:
        self.catalog = catalog
        self.listings = listings
        self.troubles = troubles
        self.screened = screened or {}
        self.validators: dict[str, Validator] = {}
        self._audiences: OrderedDict[tuple[AccessPolicy, Rights], Audience] = OrderedDict()

    def audience(self, policy: AccessPolicy, identity: Identity) -> Audience:
        """Worked out at the first call of somebody with these rights under *policy*; a look-up from then on."""
        rights = policy.rights(identity)
        known = self._audiences.get((policy, rights))
        if known is None:
            known = self._audiences[policy, rights] = self._work_out(policy, rights)
            if len(self._audiences) > _MAX_AUDIENCES:
                self._audiences.popitem(last=False)
        return known

    def _work_out(self, policy: AccessPolicy, rights: Rights) -> Audience:
        if rights.everything:
            return Audience(None, self.catalog.definition_chars())
        tools = ((item.id, item.namespace, item.name) for item in self.catalog.items.values())
        visible = policy.visible(rights, tools).__contains__
        return Audience(visible, self.catalog.definition_chars(visible))
