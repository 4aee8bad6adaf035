"""Refuses requests that are meant for another host, and those of foreign pages (ACCESS-34, ACCESS-35).

Pages of the very host that was asked are not foreign: the console is one.

A page in a browser can let its own name point to this service (DNS rebinding); its requests then bear that name as
Host. An address as Host cannot come from there, and is taken.
"""

import logging
import re
from collections.abc import Iterable
from ipaddress import ip_address

from starlette.types import Scope

from middleware.refusals import Refusal, closing_headers

ANY_HOST_PATHS = frozenset({"/healthz", "/readyz"})
"""Asked by orchestrators under any name. They give nothing away without a credential."""

log = logging.getLogger("wicketgate.http")

_MOST_SHOWN = 200
_MOST_TOLD = 20
_MOST_KNOWN = 64
_AUTHORITY = re.compile(r"(\[[0-9a-f:.]+\]|[0-9a-z_.-]+)(?::([0-9]{1,5}))?")
_FOREIGN_HOST = "The Host header names another host. Names of this service stand in server.allowed_hosts"
_FOREIGN_ORIGIN = "Pages of this origin may not call. Origins that may stand in server.allowed_origins"


class HostRule:
    """Accepts loopback names, and *hosts* and *origins*: ``name:*`` stands for any port or none, ``*`` for every one.

    Origins are written ``scheme://host`` with their port. Capitals do not matter.
    """

    def __init__(self, loopback: Iterable[str], hosts: Iterable[str] = (), origins: Iterable[str] = ()) -> None:
        names = [f"[{name}]" if ":" in name else name for name in loopback]
        self._hosts = {f"{name}:*" for name in names} | {host.lower() for host in hosts}
        self._origins = {f"http://{name}:*" for name in names} | {origin.lower() for origin in origins}

    def takes_host(self, host: str) -> bool:
        found = _AUTHORITY.fullmatch(host.lower())
        if found is None:
            return False
        return _is_address(found[1]) or _listed(self._hosts, found[1], found[0])

    def takes_origin(self, origin: str) -> bool:
        origin = origin.lower()
        scheme, separator, authority = origin.partition("://")
        found = _AUTHORITY.fullmatch(authority) if separator else None
        if found is None:
            return origin in self._origins or "*" in self._origins
        return _listed(self._origins, f"{scheme}://{found[1]}", origin)


class HostCheck:
    """Judges requests before their credentials are looked at."""

    def __init__(self, rule: HostRule) -> None:
        self._rule = rule
        self._told: set[str] = set()
        self._taken: set[str] = set()

    def refusal(self, scope: Scope) -> Refusal | None:
        if scope["path"] in ANY_HOST_PATHS:
            return None
        hosts, origins = _hosts_and_origins(scope)
        if not self._is_ours(hosts, scope):
            self._tell("Host", hosts, "server.allowed_hosts")
            return Refusal(421, "misdirected_request", _FOREIGN_HOST)
        if not origins:
            return None
        own = {f"{scheme}://{host.lower()}" for host in hosts for scheme in ("http", "https")}
        if all(origin.lower() in own or self._rule.takes_origin(origin) for origin in origins):
            return None
        self._tell("Origin", origins, "server.allowed_origins")
        return Refusal(403, "forbidden", _FOREIGN_ORIGIN, closing_headers(scope))

    def _tell(self, header: str, values: list[str], setting: str) -> None:
        """Says once for each value which setting takes it; strangers choose the values, so only some are told."""
        value = repr(", ".join(values)[:_MOST_SHOWN])
        if f"{header} {value}" not in self._told and len(self._told) < _MOST_TOLD:
            self._told.add(f"{header} {value}")
            log.warning(
                "a request with %s %s was refused; if it is meant for this service, add it to %s",
                header,
                value,
                setting,
            )

    def _is_ours(self, hosts: list[str], scope: Scope) -> bool:
        if not hosts:
            # HTTP/1.0 needs none, and no browser speaks it.
            return scope.get("http_version") == "1.0"
        if len(hosts) != 1:
            return False
        if hosts[0] in self._taken:
            return True
        taken = self._rule.takes_host(hosts[0])
        if taken and len(self._taken) < _MOST_KNOWN:
            self._taken.add(hosts[0])
        return taken


def _listed(listed: set[str], name: str, with_port: str) -> bool:
    return with_port in listed or f"{name}:*" in listed or "*" in listed


def _is_address(host: str) -> bool:
    try:
        ip_address(host.strip("[]"))
    except ValueError:
        return False
    return True


def _hosts_and_origins(scope: Scope) -> tuple[list[str], list[str]]:
    found: tuple[list[str], list[str]] = ([], [])
    for key, value in scope["headers"]:
        if key == b"host" or key == b"origin":
            # The parser leaves trailing blanks on values.
            found[key == b"origin"].append(value.strip().decode("latin-1"))
    return found
