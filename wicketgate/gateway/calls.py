"""One call of a tool: every step between its id and its result, in order.

``Calls.call`` decides whether the call is made; ``Calls._send`` makes it, by the policy of the server's operator. A
refused call has reached no server.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import msgspec

from wicketgate.access.approvers import described
from wicketgate.access.flow import NO_FLOW, CallFlow
from wicketgate.access.identity import Identity
from wicketgate.access.policy import AccessPolicy, Denied, Hidden, NeedsApproval
from wicketgate.call_state import Found, Key, QuotaStore, ResultStore
from wicketgate.catalog.catalog import Catalog
from wicketgate.catalog.graph import server_of
from wicketgate.catalog.selectable import SelectableItem
from wicketgate.catalog.skills import FILE_ARGUMENT, MAIN_FILE, as_tool_result, read_skill
from wicketgate.catalog.tool_id import ToolNames
from wicketgate.errors import (
    ArgsInvalid,
    ConnectRequired,
    Forbidden,
    GatewayError,
    HydrateFailed,
    InputRequired,
    RateLimited,
    SkillChanged,
    UnknownServer,
    UpstreamLost,
    UpstreamRefused,
    UpstreamUnavailable,
)
from wicketgate.fleet.member import Member, MultiplexUpstream
from wicketgate.gateway.audited_call import AuditedCall
from wicketgate.gateway.call_memory import result_key
from wicketgate.gateway.call_policy import CallPolicy, with_fate
from wicketgate.gateway.flows import Flows, label, names_of_server
from wicketgate.gateway.logins import Logins
from wicketgate.gateway.options import RuntimePolicies
from wicketgate.gateway.plugin_chain import PluginChain, Stage
from wicketgate.gateway.questions import PageRules, pages_of
from wicketgate.gateway.quota import Quota
from wicketgate.gateway.server_words import ServerWords, StillAllowed
from wicketgate.gateway.skill_files import admit_file
from wicketgate.gateway.snapshot import Snapshot
from wicketgate.gateway.spending import Spending
from wicketgate.login.login_flow import NoWaiting
from wicketgate.login.user_credentials import GrantName
from wicketgate.mcp_names import URL_ELICITATION_REQUIRED
from wicketgate.plugin_api import Request
from wicketgate.ports import TOOL_CHANGED, Approver, CallContext, PendingCall, PerUser, own_approver
from wicketgate.results.firewall import is_bulky
from wicketgate.schemas.validation import is_bulky_json

log = logging.getLogger("wicketgate.calls")

_MOST_SOURCE_CHARS = 200
CLAIMED = "This call was sent before, and what became of it is not known. It was not made again."
_ASK_FOR_LOGIN = frozenset({"prompts/get", "resources/read"})
"""Besides calls of tools. What comes unasked, such as a completion, sends nobody to a page."""

_NOT_FOUND = Found(None)
_NOT_OPEN = (
    "The gate is not open: enter it (async with), or run the lifespan of the application that create_app made, which a "
    "mounted application needs too."
)

Send = Callable[[Request, CallContext], Awaitable[Mapping[str, Any]]]


@dataclass(frozen=True, slots=True)
class DryRun:
    """The arguments are valid, and nothing was called. *notes* belong into the provenance. *approval*: the one
    that the call itself would wait for."""

    tool_id: str
    upstream_name: str
    approval: NeedsApproval | None = None
    notes: Mapping[str, Any] = field(default_factory=dict)


class CalledTool(msgspec.Struct, frozen=True):
    """A call that was made: the tool, the arguments after their repairs, the server's result, and notes for the
    provenance."""

    item: SelectableItem
    args: Mapping[str, Any]
    result: Mapping[str, Any]
    notes: Mapping[str, Any]


class Calls:
    """Makes calls under the operator's policies. *now* measures seconds for audit records. *in_force* gives the catalog
    and the rules of this moment, which may be newer than those of a call that waited for a person. *stale* hears of a
    server whose list of skills is out of date."""

    def __init__(
        self,
        fleet: MultiplexUpstream,
        policies: RuntimePolicies,
        plugins: PluginChain | None = None,
        *,
        quota: QuotaStore,
        results: ResultStore,
        now: Callable[[], float],
        in_force: Callable[[], tuple[Catalog, AccessPolicy]],
        approver: Callable[[CallContext], Approver] = own_approver,
        logins: Logins | None = None,
        stale: Callable[[str], None] = lambda server: None,
        flows: Flows,
        spending: Spending | None = None,
    ) -> None:
        self._fleet = fleet
        self._in_force = in_force
        self._approver = approver
        self._stale = stale
        self._logins = logins or Logins(NoWaiting())
        self._policies = policies
        self._plugins = plugins
        self._results = results
        self._now = now
        self._flows = flows
        self._spending = spending
        self._quota = Quota(quota, per_actor=policies.per_actor, per_tool=policies.per_tool, gates=policies.gate_quotas)

    def use(self, policies: RuntimePolicies) -> None:
        """Apply other policies from now on; calls under way end under those they began with."""
        self._policies = policies
        self._quota.limit(policies.per_actor, policies.per_tool, policies.gate_quotas)
        self._results.clear()

    def forget_results(self) -> None:
        """Called at each refresh: tools that announce a change may also answer differently."""
        self._results.clear()

    def _refuse_without_tools(self, tool_id: str, snapshot: Snapshot, access: AccessPolicy, identity: Identity) -> None:
        """Raises UpstreamUnavailable if *tool_id* is of a server that has given no tools yet, which this caller may
        know."""
        name = server_of(tool_id)
        member = self._fleet.members.get(name)
        if member is None or name in snapshot.listings or not access.may_know(identity, name):
            return
        status = member.upstream.status
        if status.phase == "down":
            raise UpstreamUnavailable(f"{name} has given no tools: {status.error}.", path=tool_id) from None
        if status.phase == "connecting":
            connecting = f"{name} is still connecting. Try again in a moment."
            error = UpstreamUnavailable(connecting if member.supervised else _NOT_OPEN, path=tool_id)
            error.retryable = member.supervised
            raise error from None

    async def call(
        self,
        snapshot: Snapshot,
        access: AccessPolicy,
        tool_id: str,
        args: object,
        context: CallContext,
        note: AuditedCall,
        *,
        dry_run: bool = False,
        for_app: bool = False,
    ) -> CalledTool | DryRun:
        """Raises as ``ProxyRuntime.execute``."""
        identity = context.identity
        # Look-up: a tool that this caller may not see does not exist.
        try:
            item = snapshot.find(tool_id, access, identity, for_app=for_app)
        except HydrateFailed:
            note.hidden = snapshot.hides(tool_id, access, identity)
            self._refuse_without_tools(tool_id, snapshot, access, identity)
            raise
        note.tool_id, note.server = item.id, item.server
        if context.on_tool is not None:
            context.on_tool(item.id)
        if context.answers is not None and context.answers.definition not in ("", item.digest):
            raise Forbidden(f"answers_refused: {TOOL_CHANGED}", path=item.id)
        # Validation: from here on, the arguments are those that would be sent.
        admitted = await snapshot.admit(item, args, tolerant=self._policies.call_policy(item.server).tolerant_args)
        if note.recorded:
            await note.note_arguments(admitted.args)
        target, method, sent_args = item, "tools/call", admitted.args
        if item.kind == "skill":
            target, method, sent_args = _file_of(item, admitted.args), "resources/read", {}
        # Access: rules may depend on the arguments, and on what the session has read.
        flow = note.flow = await self._flow(access, item, admitted.args, context)
        asks = await _needs_approval(access, item, admitted.args, identity, flow)
        still_allowed = partial(
            self._still_allowed, item, admitted.args, context, access, approved=asks, for_app=for_app
        )
        if dry_run:
            return DryRun(item.id, item.upstream_name, asks, admitted.notes)
        # Approval: a call over its quota must not use one up.
        decides = context.answers is not None and bool(context.answers.approval)
        if asks is not None or decides:
            await self._quota.check(identity, item.id, item.names)
            needs = () if asks is None else asks.needs
            pending = PendingCall(item.id, item.digest, admitted.args, needs, flow)
            await note.approve(self._approver(context), pending)
            # A further attempt would need a further approval: the server's questions come in the middle of the call.
            answers = None if decides else context.answers
            context = context.having(answers=answers, asked_in_line=lambda: True)
            # A person may take long, and the caller decides how long: what was forbidden in the meantime does not run.
            await still_allowed("approval_refused")
        # Quota: counted once, however often the call is tried.
        await self._quota.take(identity, item.id, item.names)
        # Plugins on the call, the server, plugins on the result.
        request = Request(context.correlation_id, method, item.server, target.upstream_name, sent_args, identity)
        send = partial(self._send, snapshot.catalog, target, context, note, partial(still_allowed, "answers_refused"))
        if self._plugins is None or not self._plugins.for_server(item.server):
            sending = send(request)
        else:
            sending = self._plugins.around(request, note.trail, send)
        if access.reads_flow:
            writes = self.may_write(item) and item.side_effects
            read = partial(self._flows.read, self._policies.flow, item.names, context, args=admitted.args)
            sending = _noted(sending, note, partial(read, writes=writes, flow=flow))
        try:
            result = await sending
        except Forbidden as error:
            error.path = item.id
            raise
        if item.kind == "skill":
            path = admitted.args.get(FILE_ARGUMENT, MAIN_FILE)
            result = as_tool_result(read_skill(item.definition), item.server, path, result)
        notes = {**admitted.notes, "cache_hit": True} if note.cached else admitted.notes
        return CalledTool(item, admitted.args, result, notes)

    async def _flow(
        self, access: AccessPolicy, item: SelectableItem, args: Mapping[str, Any], context: CallContext
    ) -> CallFlow:
        if not access.reads_flow:
            return NO_FLOW
        return await self._flows.of_call(self._policies.flow, item, args, context, writes=self.may_write(item))

    def flow_label(self, item: SelectableItem) -> str:
        """Describes how flow rules treat *item*; empty if there are no flow rules."""
        if not self._in_force()[1].reads_flow:
            return ""
        return label(self._policies.flow, item, writes=self.may_write(item))

    async def heard(self, names: ToolNames, context: CallContext) -> None:
        """Records for flow rules that the client of a session receives words of a tool or server."""
        if self._in_force()[1].reads_flow:
            await self._flows.read(self._policies.flow, names, context, {}, {}, writes=True)

    def may_write(self, item: SelectableItem) -> bool:
        """True unless it is known of every call of *item* that it changes nothing (ACCESS-63)."""
        if self._plugins is not None and self._plugins.may_redirect(item.server):
            return True
        return self._policies.call_policy(item.server).may_write(item)

    async def screen(self, context: CallContext, result: Mapping[str, Any], trail: list[Stage]) -> Mapping[str, Any]:
        """Passes the result of a program through the plugins. Raises Forbidden."""
        if self._plugins is None:
            return result
        request = Request(context.correlation_id, "tools/call", "", "tool_run", {}, context.identity)
        return await self._plugins.on_result("", request, result, trail)

    async def pass_on(
        self, request: Request, context: CallContext, note: AuditedCall, send: Send, still_allowed: StillAllowed
    ) -> Mapping[str, Any]:
        """Pass on a request that is no call of a tool, such as a resource read, through the same plugins. *send*
        carries it as they left it; *still_allowed* is as in ServerWords."""
        note.server = asked_for = request.server
        await self._quota.take_other(context.identity, note.tool_id)

        names = names_of_server(asked_for, request.method)

        async def sent(request: Request) -> Mapping[str, Any]:
            note.server = request.server
            note.sent = True
            words = self._words(request, asked_for, context, note, still_allowed, names)
            run = partial(words.around, context, partial(send, request))
            try:
                if request.method in _ASK_FOR_LOGIN:
                    result = await self._logins.around(context, run, still_allowed)
                else:
                    result = await run()
            except UpstreamRefused as refused:
                note.answered = True
                _check_pages(request.server, refused, self._policies.pages_for(request.server))
                raise
            note.answered = True
            return result

        sending = sent(request) if self._plugins is None else self._plugins.around(request, note.trail, sent)
        if self._in_force()[1].reads_flow:
            source = f"{asked_for}: {note.tool_id[:_MOST_SOURCE_CHARS]}"
            read = partial(self._flows.read, self._policies.flow, names, context, args=request.arguments)
            sending = _noted(sending, note, partial(read, writes=False, source=source))
        return await sending

    async def _still_allowed(
        self,
        item: SelectableItem,
        args: Mapping[str, Any],
        context: CallContext,
        access: AccessPolicy,
        refusal: str,
        *,
        approved: NeedsApproval | None,
        for_app: bool,
    ) -> None:
        """Raises Forbidden if the call of *item*, which was allowed by *access*, is not allowed by the rules and the
        definition of this moment, or only with an approval that *approved* is not. *refusal* opens the message."""
        catalog, rules = self._in_force()
        if (now := catalog.get(item.id, for_app=for_app)) is None or now.digest != item.digest:
            raise Forbidden(f"{refusal}: {TOOL_CHANGED}", path=item.id)
        if rules is access:
            return
        flow = await self._flow(rules, now, args, context)
        asks = await _needs_approval(rules, now, args, context.identity, flow)
        if asks is not None and (approved is None or not set(asks.needs) <= set(approved.needs)):
            whose = described(asks.needs) or "the owner"
            raise Forbidden(f"{refusal}: this call needs the approval of {whose} now. Make it again.", path=item.id)

    def _words(
        self,
        request: Request,
        asked_for: str,
        context: CallContext,
        note: AuditedCall,
        still_allowed: StillAllowed,
        names: ToolNames,
    ) -> ServerWords:
        count = partial(self._quota.take_other, context.identity, note.tool_id)
        pages = self._policies.pages_for(request.server)
        heard = partial(self.heard, names, context)
        return ServerWords(request, asked_for, self._plugins, note, count, still_allowed, pages, heard)

    async def _send(
        self,
        catalog: Catalog,
        item: SelectableItem,
        context: CallContext,
        note: AuditedCall,
        still_allowed: StillAllowed,
        request: Request,
    ) -> Mapping[str, Any]:
        """The server's result for *request*, which is the call of *item* as the plugins left it.

        Raises UpstreamUnavailable, UpstreamTimeout, UpstreamError or RateLimited, with the tool's id as path.
        """
        asked_for = item.server
        # Server look-up: after the plugins, so that one of them may redirect the call (ROUTE-20).
        redirected = (request.server, request.name) != (item.server, item.upstream_name)
        if redirected:
            if request.server not in self._fleet.members:
                raise UnknownServer(f"Unknown server '{request.server[:256]}' in request", path=item.id)
            item = replace(item, server=request.server, upstream_name=request.name)
        policy = self._policies.call_policy(item.server)
        note.server = item.server
        note.sent = True
        # Cache: only what the operator named is looked for, and kept.
        key, found = None, _NOT_FOUND
        if policy.caches(item.upstream_name):
            key = await self._key(catalog, item, request.arguments, context, policy)
        if key is not None:
            found = self._results.get(key)
            if found.result is not None:
                note.cached = note.answered = True
                return found.result
        # Claim and intent: kept before the call leaves, once for all attempts.
        may_write = policy.may_write(item, redirected=redirected)
        if may_write and context.claim is not None and not await context.claim():
            raise UpstreamLost(CLAIMED, path=item.id)
        if may_write and note.recorded:
            await note.intend()
        # The server, tried again where that cannot do a thing twice, and after a login that the call needs first.
        repeatable = policy.is_repeatable(item, redirected=redirected)
        send = partial(self._with_retries, policy, item, request.arguments, repeatable)
        if ServerWords.none_in(context):
            run = partial(send, context.having(marks=note.marks))
        else:
            words = self._words(request, asked_for, context, note, still_allowed, item.names)
            run = partial(words.around, context, send)
        began = self._now() if note.recorded else 0.0
        try:
            try:
                result = await run()
            except ConnectRequired as need:
                result = await self._logins.after(need, context, run, still_allowed)
            finally:
                if note.recorded:
                    note.upstream_s = self._now() - began
        except UpstreamRefused as refused:
            note.answered = True
            _check_pages(request.server, refused, self._policies.pages_for(request.server))
            raise
        note.answered = True
        note.tool_error = bool(result.get("isError"))
        if self._spending is not None:
            note.price = self._spending.called(context.identity, item, result)
        if key is not None and not note.tool_error and not note.marks.questioned and not is_bulky(result):
            self._results.put(key, result, policy.cache_ttl_s, found.since)
        return result

    async def _key(
        self,
        catalog: Catalog,
        item: SelectableItem,
        arguments: Mapping[str, Any],
        context: CallContext,
        policy: CallPolicy,
    ) -> Key | None:
        """The key of a kept result. What one account was given is no other's, nor that of a caller who has none."""
        account: GrantName | None = None
        member = self._fleet.members.get(item.server)
        if member is not None and isinstance(member.upstream, PerUser):
            try:
                account = await member.upstream.account_of(context.identity)
            except UpstreamUnavailable:
                return None
            if account is None:
                return None
        shared = policy.cache_shared and account is None
        return result_key(catalog, item, arguments, context, shared=shared, account=account)

    async def _with_retries(
        self,
        policy: CallPolicy,
        item: SelectableItem,
        arguments: Mapping[str, Any],
        repeatable: bool,
        context: CallContext,
    ) -> Mapping[str, Any]:
        # *uncertain*: the failure of an attempt that the server may have carried out.
        marks, failed, uncertain = context.marks, 0, None
        while True:
            try:
                member, timeout_s = self._fleet.member(item.server), policy.deadline_s(item.upstream_name)
                if item.kind == "skill":
                    return await self._read_file(member, item, context, timeout_s)
                return await member.call_tool(item.upstream_name, arguments, context, timeout_s, policy.task_s)
            except InputRequired as question:
                question.definition = item.digest
                raise
            except GatewayError as error:
                failed += 1
                error.path = item.id
                if isinstance(error, UpstreamRefused):
                    error.name = item.upstream_name
                log.warning("%s: %s, attempt %d", item.id, error.code, failed)
                outcome = error
                if isinstance(error, UpstreamUnavailable | RateLimited | ConnectRequired):
                    # This attempt never left. If an earlier one did, what became of that is the answer.
                    outcome = uncertain or error
                    marks.left = uncertain is not None
                else:
                    uncertain = error
                if not policy.retry.may_retry(error, failed, repeatable=repeatable):
                    raise with_fate(outcome, repeatable=repeatable) from None
            await asyncio.sleep(policy.retry.wait_s(failed))

    async def _read_file(
        self, member: Member, item: SelectableItem, context: CallContext, timeout_s: float
    ) -> Mapping[str, Any]:
        """A file of a skill, if it is as the skill says. Raises SkillChanged, Forbidden, and as ``Member.guarded``."""
        if member.features is None:
            raise UpstreamUnavailable(f"{item.server} no longer has skills.")
        uri = item.upstream_name
        result = await member.features.request("resources/read", {"uri": uri}, context, timeout_s)
        try:
            return await admit_file(read_skill(item.definition), item.server, uri, result, self._policies.pins)
        except SkillChanged:
            self._stale(item.server)
            raise


async def _noted(
    sending: Awaitable[Mapping[str, Any]], note: AuditedCall, read: Callable[[Mapping[str, Any]], Awaitable[None]]
) -> Mapping[str, Any]:
    """Returns the result of *sending* after *read* has recorded it for the session. Failures are recorded too, because
    they may contain the server's words. A cancelled call returns nothing to its caller."""
    try:
        result = await sending
    except GatewayError:
        if note.sent:
            await read({})
        raise
    if note.sent:
        await read(result)
    return result


def _file_of(item: SelectableItem, args: Mapping[str, Any]) -> SelectableItem:
    """The skill with the file that *args* name, as the target of a call. Raises ArgsInvalid."""
    uri = read_skill(item.definition).uri_of(args.get(FILE_ARGUMENT, MAIN_FILE))
    if uri is None:
        raise ArgsInvalid(f"{FILE_ARGUMENT}: give the plain path of one file in the skill.", path=item.id)
    return replace(item, upstream_name=uri)


def _check_pages(server: str, refused: UpstreamRefused, rules: PageRules) -> None:
    """Leave in *refused* only pages that a person may be sent to, because clients open those of an error as they open
    those of a question (FACE-86)."""
    if refused.upstream_code != URL_ELICITATION_REQUIRED:
        return
    refused.data, left_out = pages_of(server, refused.data, rules)
    for why in left_out:
        log.warning("%s: a page in an error of the server was not shown to anyone: it %s", server, why)


async def _needs_approval(
    access: AccessPolicy, item: SelectableItem, args: Mapping[str, Any], identity: Identity, flow: CallFlow
) -> NeedsApproval | None:
    """Decided on the arguments that would be sent. Raises Forbidden."""
    if access.rules and is_bulky_json(args):
        # Conditions read the arguments, which takes as long as these are large.
        outcome = await asyncio.to_thread(access.decide, identity, item.names, args, flow)
    else:
        outcome = access.decide(identity, item.names, args, flow)
    match outcome:
        case Denied(reason) | Hidden(reason):
            log.warning("%s: refused: %s", item.id, reason)
            raise Forbidden("You may use this tool, but not with these arguments.", path=item.id)
        case NeedsApproval() as asks:
            return asks
        case _:
            return None
