"""One access rule: which tools it is about, what it asks of a caller, what it makes of a call (DESIGN §2 "access")."""

import fnmatch
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from operator import eq
from typing import Literal

from wicketgate.access.condition import Condition
from wicketgate.access.identity import Identity

Matches = Callable[[str], bool]


@dataclass(frozen=True, slots=True)
class AccessRule:
    """*match* is ``namespace:name`` with ``*``, ``?`` and ``[...]``, in the tool's own case. *require* all of these
    permissions, *require_any* one of them; *resource* with *action* is the permission ``<resource>:<action>``.
    ``internal`` tools exist for nobody outside. *when* limits the rule to some callers or calls.
    """

    match: str
    require: tuple[str, ...] = ()
    require_any: tuple[str, ...] = ()
    resource: str = ""
    action: str = ""
    visibility: Literal["external", "internal"] = "external"
    when: Condition | None = None
    approval: Literal["never", "always"] = "never"
    effect: Literal["allow", "deny"] = "allow"

    def missing(self, identity: Identity) -> str:
        """What *identity* lacks of what is required, in words; empty if nothing."""
        wanted = [*self.require, f"{self.resource}:{self.action}"] if self.resource else self.require
        lacking = [permission for permission in wanted if not identity.allows(permission)]
        if lacking:
            return f"needs the permission {lacking[0]}"
        if self.require_any and not any(map(identity.allows, self.require_any)):
            return f"needs one of the permissions {', '.join(self.require_any)}"
        return ""


def split_pattern(match: str) -> tuple[str, str]:
    """The two globs of a rule's *match*. Raises ValueError."""
    namespace, colon, name = match.partition(":")
    if match == "*":
        return "*", "*"
    if not (namespace and colon and name) or ":" in name:
        raise ValueError("must be <namespace>:<tool>, for example github:delete_* or *:*")
    return namespace, name


def compile_glob(pattern: str) -> Matches | None:
    """None for what everything matches. The plain forms are some times cheaper than an expression."""
    if pattern == "*":
        return None
    plain = pattern.rstrip("*")
    if not re.search(r"[*?\[]", plain):
        return partial(eq, plain) if plain == pattern else _starts(plain)
    expression = re.compile(fnmatch.translate(pattern))
    return lambda text: expression.match(text) is not None


def _starts(prefix: str) -> Matches:
    return lambda text: text.startswith(prefix)
