"""Rules that nobody can approve, by what is configured."""

from ipaddress import ip_network

import pytest

from tests.support.requirement import requirement
from wicketgate.access.approvers import Need, can_be_met
from wicketgate.access.identity import Identity
from wicketgate.access.issuer import Grant, Issuer
from wicketgate.access.signed_headers import TrustedGateway

ANN = Identity("ann", ("tools:*", "approve:payments"), "k1", ("lead",))
BEN = Identity("ben", ("approve:*",), "k2")
PLAIN = Issuer("corp", "https://id.example.com")
WITH_ROLES = Issuer("corp", "https://id.example.com", roles="roles")
GRANTS = Issuer("corp", "https://id.example.com", grants=(Grant(("approve:payments",), "scope", "pay"),))
FRONT = TrustedGateway("front", (ip_network("10.0.0.7"),), (b"x" * 32,), ("approve:payments",))


@requirement("OPS-383")
@pytest.mark.parametrize(
    ("need", "keys", "issuers", "gateway", "possible"),
    [
        (Need("role:lead"), [ANN], [], None, True),
        (Need("role:lead", 2), [ANN, BEN], [], None, False),
        # Two keys of one actor are one approver.
        (Need("role:lead", 2), [ANN, Identity("ann", (), "k3", ("lead",))], [], None, False),
        (Need("role:chief"), [ANN, BEN], [PLAIN], FRONT, False),
        # Which roles its tokens have is the issuer's to say.
        (Need("role:chief", 3), [], [WITH_ROLES], None, True),
        (Need("permission:approve:payments", 2), [ANN, BEN], [], None, True),
        (Need("permission:approve:payments"), [], [PLAIN], None, False),
        (Need("permission:approve:payments", 2), [], [GRANTS], None, True),
        (Need("permission:approve:payments", 2), [], [], FRONT, True),
        (Need("permission:approve:other"), [ANN], [GRANTS], FRONT, False),
        (Need("actor:ann"), [ANN], [], None, True),
        (Need("actor:eve"), [ANN], [PLAIN], FRONT, False),
        (Need("actor:corp:eve"), [], [PLAIN], None, True),
        (Need("actor:front:eve"), [], [], FRONT, True),
    ],
)
def test_it_is_told_who_could_approve(
    need: Need, keys: list[Identity], issuers: list[Issuer], gateway: TrustedGateway | None, possible: bool
) -> None:
    assert can_be_met(need, keys, issuers, gateway) is possible
