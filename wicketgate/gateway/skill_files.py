"""Files of skills on their way to a caller: held against the entry of their skill, and searched for suspicious signs
(ROUTE-60, ACCESS-77).

An entry is pinned like a definition, and names every file with its digest. So nothing that a person did not accept
comes to a model behind an entry that was accepted.
"""

import asyncio
import logging
from collections.abc import Mapping
from typing import Any

from wicketgate.catalog.pins import PinPolicy, suspicious_signs
from wicketgate.catalog.skills import Skill, SkillMismatch, checked_file, text_of
from wicketgate.errors import Forbidden, SkillChanged
from wicketgate.results.firewall import is_bulky

log = logging.getLogger("wicketgate.skills")


async def admit_file(
    skill: Skill, server: str, uri: str, result: Mapping[str, Any], policy: PinPolicy
) -> Mapping[str, Any]:
    """*result*, a ``resources/read`` of the file *uri*, if it may be shown. Raises SkillChanged for a file that is not
    as its entry says, and Forbidden for one that is held as suspicious."""
    # A frontmatter of a few kilobytes can take a quarter of a second.
    if uri == skill.uri or is_bulky(result):
        await asyncio.to_thread(_check, skill, server, uri, result, policy)
    else:
        _check(skill, server, uri, result, policy)
    return result


def is_trusted(skill: Skill, server: str, policy: PinPolicy) -> bool:
    """True if a person accepted its suspicious signs, in the lock file."""
    pinned = (policy.pins or {}).get(f"{server}/skills", {}).get(skill.uri)
    return pinned is not None and pinned.trusted


def _check(skill: Skill, server: str, uri: str, result: Mapping[str, Any], policy: PinPolicy) -> None:
    try:
        part = checked_file(skill, uri, result)
    except SkillMismatch as mismatch:
        log.warning("%s: the file %.200s does not match its skill: %s", server, uri, mismatch)
        raise SkillChanged(
            f"The file is not what its skill says of it: {mismatch}. The list of skills is read again; try again in a "
            "moment."
        ) from None
    signs = suspicious_signs({"text": text_of(part)})
    if not signs or is_trusted(skill, server, policy):
        return
    log.warning("%s: suspicious text in the file %.200s of a skill: %s", server, uri, "; ".join(signs))
    if policy.hold_suspicious:
        raise Forbidden("This file contains suspicious text and is withheld until a person accepts its skill.")
