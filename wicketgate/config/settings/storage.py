"""The sections ``storage``, ``pins`` and ``quota``: what is kept, what is accepted, how much may run."""

from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, field_validator, model_validator

from wicketgate.config.settings.base import Section

_SQLITE = "sqlite:///"


class StorageSettings(Section):
    """Where artifacts are kept, and how much and how long."""

    url: str = "memory://"
    """Or ``sqlite:///relative.db``, from the working directory, or ``sqlite:////absolute.db``."""
    max_bytes: int = Field(default=256 * 1024 * 1024, ge=1024 * 1024)
    max_age_s: float = Field(default=3_600.0, gt=0, le=30 * 86_400)

    @field_validator("url")
    @classmethod
    def _known(cls, url: str) -> str:
        if url == "memory://":
            return url
        if not url.startswith("sqlite:"):
            raise ValueError("must be memory:// or a file, for example sqlite:///var/wicketgate.db")
        file = url.removeprefix(_SQLITE)
        if file == url:
            raise ValueError(
                "needs three slashes before a relative path (sqlite:///var/wicketgate.db) and four before an "
                "absolute one (sqlite:////var/lib/wicketgate.db)"
            )
        if file == ":memory:":
            raise ValueError("is memory:// here")
        if not file.strip("/") or file.endswith("/") or "\0" in file or "?" in file:
            raise ValueError("must name a file after sqlite:///, without options")
        return url

    @property
    def sqlite_file(self) -> Path | None:
        """None for memory."""
        return Path(self.url.removeprefix(_SQLITE)) if self.url.startswith(_SQLITE) else None


class PinSettings(Section):
    """What happens to tools whose definitions are not as they were accepted, or look suspicious."""

    file: str | None = None
    """Made by ``wicketgate lock``; without it no tool is pinned."""
    new_tools: Literal["allow", "quarantine"] = "allow"
    suspicious: Literal["flag", "quarantine"] = "flag"

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if self.new_tools == "quarantine" and self.file is None:
            raise ValueError("new_tools: quarantine needs pins.file: without it every tool is new")
        return self


class QuotaSettings(Section):
    """Executions in any sixty seconds. *per_tool* goes by tool id, which may hold ``*``; the first that fits."""

    per_actor: int | None = Field(default=None, ge=0)
    per_tool: dict[str, Annotated[int, Field(ge=0)]] = {}
