"""Servers that operators have switched, taken over by a process that starts while others run (OPS-354)."""

import hashlib
import json
import logging
from collections.abc import Set

from wicketgate.config.settings.upstreams import UpstreamSettings
from wicketgate.errors import ConfigError
from wicketgate.gate import Gate
from wicketgate.peers import Payload, ask_others

log = logging.getLogger("wicketgate.console")

_OPERATION = "console_switches"


class Switches:
    """Tells peers what is switched at the process of *gate*, and takes over what is switched at theirs. To be made
    before the gate is entered."""

    def __init__(self, gate: Gate) -> None:
        self._gate = gate
        gate.peers.answer(_OPERATION, self._answer)

    async def take_over(self) -> None:
        """Switches what is switched at a process that answers, where the server is configured alike here and there.
        The log says what could not be done."""
        answers = await ask_others(self._gate.peers, _OPERATION, {})
        wanted = {
            name: told
            for answer in answers.given.values()
            for name, told in answer.get("switched", {}).items()
            if name not in self._gate.switched
        }
        for name, told in wanted.items():
            here = next((each for each in self._gate.settings.upstreams if each.name == name), None)
            if here is None or here.enabled == told["enabled"] or _configured(here, here.enabled) != told["configured"]:
                continue
            try:
                await self._gate.switch(name, enabled=told["enabled"])
            except (KeyError, ConfigError) as error:
                log.error("upstream %s: what is switched at another process is not possible: %s", name, error)

    async def _answer(self, wanted: Payload) -> Payload:
        switched = self._gate.switched
        return {
            "switched": {
                each.name: {"enabled": each.enabled, "configured": _configured(each, not each.enabled)}
                for each in self._gate.settings.upstreams
                if each.name in switched
            }
        }


def _configured(upstream: UpstreamSettings, enabled: bool) -> str:
    """Stands for the server as it is configured: another one is another file, or the same that was changed."""
    settings = upstream.model_copy(update={"enabled": enabled}).model_dump()
    return hashlib.sha256(json.dumps(settings, sort_keys=True, default=_plain).encode("ascii")).hexdigest()


def _plain(value: object) -> object:
    # The order of a set is another one in each process.
    return sorted(map(str, value)) if isinstance(value, Set) else str(value)
