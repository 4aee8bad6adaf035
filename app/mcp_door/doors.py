"""The faces as MCP servers over HTTP, each at its own path, kept running together and told when the catalog changes."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

import anyio

from app.mcp_door.endpoint import McpEndpoint
from wicketgate.access.seal import Seal
from wicketgate.faces.assembly import Face
from wicketgate.faces.mcp.server import McpDoor


@dataclass(frozen=True, slots=True)
class DoorLimits:
    """*hosts* and *origins*: the headers that are answered. What bounds the sessions of an actor bounds its listening
    streams too."""

    hosts: Sequence[str]
    origins: Sequence[str]
    max_bytes: int
    max_sessions: int
    max_sessions_per_actor: int


class McpDoors:
    """*endpoints* by the face's name; of use while ``running``."""

    def __init__(self, faces: Mapping[str, Face], *, version: str, seal: Seal, limits: DoorLimits) -> None:
        self._doors = {
            name: McpDoor(
                face.surface,
                name=name,
                version=version,
                instructions=face.instructions,
                seal=seal,
                offers=face.offers,
                max_streams_per_actor=limits.max_sessions_per_actor,
            )
            for name, face in faces.items()
        }
        self.endpoints = {
            name: McpEndpoint(
                door.server,
                hosts=limits.hosts,
                origins=limits.origins,
                max_bytes=limits.max_bytes,
                max_sessions=limits.max_sessions,
                max_sessions_per_actor=limits.max_sessions_per_actor,
            )
            for name, door in self._doors.items()
        }

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            for endpoint in self.endpoints.values():
                await stack.enter_async_context(endpoint.manager.run())
            announcing = await stack.enter_async_context(anyio.create_task_group())
            for door in self._doors.values():
                announcing.start_soon(door.announcer.run)
            yield
            announcing.cancel_scope.cancel()

    def end_listening(self) -> None:
        """End what clients hear changes on: in the newer era in the way that says so, in the handshake era by an end
        of the stream."""
        for door in self._doors.values():
            door.announcer.close()
        for endpoint in self.endpoints.values():
            endpoint.end_listening()

    def open_sessions(self) -> int:
        """Of the handshake era, at all doors."""
        return sum(endpoint.open_sessions for endpoint in self.endpoints.values())

    def catalog_changed(self) -> None:
        """Tell the clients of each face whose list of tools is another now."""
        for door in self._doors.values():
            door.list_changed()

    def access_changed(self) -> None:
        """Notify the clients of each face that they may be shown other things of the same catalog."""
        for door in self._doors.values():
            door.access_changed()
