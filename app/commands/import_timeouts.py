"""The timeouts of a client's entry in seconds; each client has its own units (OPS-85)."""

import math
from collections.abc import Mapping
from typing import Any

TIMEOUTS = ("timeout", "tool_timeout_sec", "startup_timeout_sec", "startup_timeout_ms", "connectionTimeout")

_MS_CLIENTS = frozenset({"claude-code", "gemini", "opencode"})
_S_CLIENTS = frozenset({"cline", "codex"})
_MAX_TIMEOUT_S = 86_400
_USUAL_CONNECT_S = 60


def read_timeouts(entry: Mapping[str, Any], client: str, notes: list[str]) -> dict[str, Any]:
    """Returns ``timeout_s`` for calls and ``connect_timeout_s`` for the start, as far as *entry* of *client* gives
    them. What is not taken over gets one of *notes*."""
    return _Timeouts(entry, client, notes).read()


class _Timeouts:
    def __init__(self, entry: Mapping[str, Any], client: str, notes: list[str]) -> None:
        self._entry = entry
        self._client = client
        self._notes = notes

    def read(self) -> dict[str, Any]:
        given = self._entry
        calls_s = self._seconds("tool_timeout_sec", given.get("tool_timeout_sec"), 1)
        start_s = self._seconds("connectionTimeout", given.get("connectionTimeout"), 0.001)
        start_s = self._seconds("startup_timeout_ms", given.get("startup_timeout_ms"), 0.001) or start_s
        start_s = self._seconds("startup_timeout_sec", given.get("startup_timeout_sec"), 1) or start_s
        timeout = given.get("timeout")
        if isinstance(timeout, Mapping):  # opencode, version 2
            calls_s = self._seconds("timeout.request", timeout.get("request"), 0.001)
            start_s = self._seconds("timeout.startup", timeout.get("startup"), 0.001)
        elif timeout is not None and calls_s is None:
            calls_s = self._seconds("timeout", timeout, self._unit_of(timeout))
            # For opencode it bounds the start too. Its usual 5 s would be too short for npx.
            if self._client == "opencode" and calls_s is not None and calls_s > _USUAL_CONNECT_S:
                start_s = calls_s
        times = {"connect_timeout_s": start_s, "timeout_s": calls_s}
        return {key: value for key, value in times.items() if value is not None}

    def _unit_of(self, value: object) -> float | None:
        """Returns what *value* is to be multiplied by, for seconds; None if that cannot be known."""
        if isinstance(value, bool) or not isinstance(value, int | float):
            return 1
        if self._client in _S_CLIENTS:
            return 1
        if self._client == "claude-code" and value < 1000:
            self._notes.append(f"timeout {value} is not taken over: the client ignores less than 1000 ms")
            return None
        if self._client in _MS_CLIENTS:
            return 0.001
        if self._client == "zed" and value <= 3600:
            return 1
        # The others do not say. Zed counted milliseconds at first.
        if value < 1000 or value >= 10_000:
            unit, factor = ("milliseconds", 0.001) if value >= 10_000 else ("seconds", 1)
            self._notes.append(f"timeout {value} was taken for {unit}")
            return factor
        self._notes.append(f"timeout {value} is not taken over: seconds or milliseconds?")
        return None

    def _seconds(self, key: str, value: object, factor: float | None) -> float | None:
        if value is None or factor is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value <= 0:
            self._notes.append(f"{key} is not taken over: it is no positive number")
            return None
        seconds = round(min(value * factor, _MAX_TIMEOUT_S), 3) or 0.001
        if value * factor > _MAX_TIMEOUT_S:
            self._notes.append(f"{key} was shortened to {_MAX_TIMEOUT_S} s, the longest here")
        return int(seconds) if seconds == int(seconds) else seconds
