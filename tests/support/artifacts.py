"""Artifacts to keep, and what a store holds of them."""

import hashlib

from wicketgate.ports import Artifact, ArtifactStore
from wicketgate.storage.artifacts import size_bytes


def artifact(name: str, length: int = 100) -> Artifact:
    return Artifact(handle(name), "text/plain", "full text", name.encode()[:1] * length)


def handle(name: str) -> str:
    return f"text:a:b@1:{name:>5}"


def sealed(data: bytes) -> Artifact:
    """Under a handle that is made of its content, as real ones are."""
    return Artifact(f"text:a:b@1:{hashlib.sha256(data).hexdigest()[:16]}", "application/octet-stream", "data", data)


def room_for(count: int, length: int = 100) -> int:
    return count * size_bytes(artifact("one", length))


async def held(store: ArtifactStore, owner: str, *names: str) -> list[str]:
    """Those of *names* that are there; asking is a use of each."""
    return [name for name in names if await store.get(owner, handle(name)) is not None]
