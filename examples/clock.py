"""Clocks of the world as typed Python functions: a tool server of the image's demo (``examples/docker.yaml``)."""

from datetime import datetime
from typing import Annotated
from zoneinfo import ZoneInfo, available_timezones

from pydantic import Field

from wicketgate.tools import ToolFailed, ToolRegistry

registry = ToolRegistry()

Timezone = Annotated[str, Field(description="IANA timezone, such as 'Europe/Lisbon'")]


@registry.tool(read_only=True)
def get_current_time(timezone: Timezone) -> dict[str, str]:
    """The date and time now in a timezone."""
    if timezone not in available_timezones():
        raise ToolFailed(f"There is no timezone {timezone!r}. Give an IANA name, such as 'Europe/Lisbon'.")
    now = datetime.now(ZoneInfo(timezone))
    return {"timezone": timezone, "time": now.isoformat(timespec="seconds"), "day": now.strftime("%A")}
