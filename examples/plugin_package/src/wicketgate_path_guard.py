"""Keeps the paths in tool calls under folders that the operator names: an example of a plugin for Wicketgate."""

import posixpath
from collections.abc import Iterator

from pydantic import Field, field_validator

from wicketgate.plugin_api import ALLOW, Allow, Block, PluginConfig, Request, SecurityPlugin


class PathGuardConfig(PluginConfig):
    """*roots* are the folders that may be named; *arguments* the names of the arguments that hold paths."""

    roots: tuple[str, ...] = Field(min_length=1)
    arguments: tuple[str, ...] = ("path", "paths")

    @field_validator("roots")
    @classmethod
    def _absolute(cls, roots: tuple[str, ...]) -> tuple[str, ...]:
        relative = next((root for root in roots if not root.startswith("/")), None)
        if relative is not None:
            raise ValueError(f"{relative!r} must be absolute")
        return tuple(posixpath.normpath(root) for root in roots)


class PathGuard(SecurityPlugin):
    """Judges a path by its text: links are the tool server's to follow or not."""

    Config = PathGuardConfig
    config: PathGuardConfig

    async def on_request(self, request: Request) -> Allow | Block:
        paths = [path for name in self.config.arguments for path in _texts(request.arguments.get(name))]
        if all(map(self._inside, paths)):
            return Allow(note=f"paths: {len(paths)}") if paths else ALLOW
        # The reason is shown to the caller: say what was found, not what stands there.
        return Block("a path outside the folders that may be used")

    def _inside(self, path: str) -> bool:
        normal = posixpath.normpath(path)
        return any(normal == root or normal.startswith(root.rstrip("/") + "/") for root in self.config.roots)


def _texts(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        yield from (each for each in value if isinstance(each, str))
