"""Views of what calls have left: parts of artifacts, and calls that outlive their requests, each for its owner
(EXEC-29, EXEC-34, EXEC-47)."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from wicketgate.access.policy import AccessPolicy
from wicketgate.catalog.tool_id import ToolNames
from wicketgate.gateway.archive import (
    Archive,
    Execution,
    NamedLink,
    handle_parts,
    may_view,
    names_in,
    no_such_artifact,
    no_such_call,
    owner_of,
    whole_handle,
)
from wicketgate.gateway.audited_call import Audit, AuditedCall
from wicketgate.gateway.kept_calls import FollowedCall, KeptCalls
from wicketgate.gateway.running_calls import RunningCall, RunningCalls
from wicketgate.gateway.snapshot import Snapshot
from wicketgate.ports import CallContext
from wicketgate.results.view import View

VIEWED = "view"
"""The door, in their rows, of calls that are viewed by a handle."""


class Viewing:
    """*in_force* gives the catalog and the rules, *audit* opens the record of each view. *heard* is awaited before a
    caller is shown what a tool gave: that may have been in another session."""

    def __init__(
        self,
        in_force: Callable[[], tuple[Snapshot, AccessPolicy]],
        audit: Audit,
        archive: Archive,
        running: RunningCalls,
        kept: KeptCalls,
        heard: Callable[[ToolNames, CallContext], Awaitable[None]],
    ) -> None:
        self._in_force = in_force
        self._audit = audit
        self._archive = archive
        self._running = running
        self._kept = kept
        self._heard = heard

    async def link(self, wanted: str, context: CallContext) -> NamedLink | None:
        """Returns the link that *wanted* names, if a tool that this caller may still use gave it to this actor."""
        if ":" in (tool_id := handle_parts(wanted)[1]) and "/" not in tool_id:
            return None  # the handle of an artifact
        link = await self._archive.link(wanted, context.identity.actor)
        (snapshot, access), identity = self._in_force(), context.identity
        usable = link is not None and may_view(snapshot.catalog, access, f"link:{link.tool_id}:", identity)
        return link if usable else None

    async def view(self, handle: str, selector: object, context: CallContext) -> View:
        """A bounded part of an artifact that this actor owns (EXEC-29, EXEC-34). Raises ViewFailed."""
        async with self._audit("view", context, handle) as note:
            whole = await self._viewable(handle, context, note)
            if whole is None:
                raise no_such_artifact(handle)
            return await self._archive.view(whole, selector, owner_of(whole, context.identity))

    @asynccontextmanager
    async def watching(self, handle: str, context: CallContext) -> AsyncIterator[RunningCall[Execution] | FollowedCall]:
        """The call of *handle*, in this process or another, which this actor began and may still use; audited as a view
        while the block runs. Raises ViewFailed and UpstreamUnavailable."""
        async with self._audit("view", context, handle) as note:
            whole = await self._viewable(handle, context, note)
            _, tool_id, id = handle_parts(whole or "")
            actor = context.identity.actor
            if (call := self._running.get(actor, id)) is not None:
                if call.label != tool_id:
                    raise no_such_call(handle)
                yield call
                return
            if not id:
                raise no_such_call(handle)
            async with self._kept.following(actor, id) as followed:
                if followed.row is None or (followed.row.get("door"), followed.row.get("label")) != (VIEWED, tool_id):
                    raise no_such_call(handle)
                yield followed

    async def _viewable(self, handle: str, context: CallContext, note: AuditedCall) -> str | None:
        """The whole handle; None if its tool is none of this caller's."""
        (snapshot, access), identity = self._in_force(), context.identity
        note.tool_id = whole = whole_handle(snapshot, access, handle, identity)
        if may_view(snapshot.catalog, access, whole, identity):
            await self._heard(names_in(snapshot.catalog, whole), context)
            return whole
        note.hidden = True
        return None
