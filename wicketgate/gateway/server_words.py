"""The words of a server while a call of it runs: progress, log messages, questions, requests for the client's model and
folders, and the answers to these, through the plugins and into the audit record (ROUTE-31 to ROUTE-36, ROUTE-55 to
ROUTE-57)."""

import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from wicketgate.errors import Forbidden, GatewayError, InputRequired, UpstreamError
from wicketgate.gateway.audited_call import AuditedCall
from wicketgate.gateway.client_requests import KINDS, QUESTION, ROOTS, SAMPLE, Kind, answer_of, kind_of, request_of
from wicketgate.gateway.plugin_chain import PluginChain, Stage
from wicketgate.gateway.questions import CANCELLED, PageRules, QuestionRefused, question_of
from wicketgate.plugin_api import Message, Request
from wicketgate.ports import SILENT, CallContext, Caller, CannotAsk, InputAnswers, PassingCaller

log = logging.getLogger("wicketgate.calls")

PROGRESS = "notifications/progress"
LOG = "notifications/message"

_MAX_STAGES = 50
"""Different findings in what a server says during one call that its record names."""
_MAX_ROUNDS = 8
_MAX_SAMPLES = 100
"""Requests for the client's model during one call: each costs the client."""

_METHODS: Mapping[Kind, str] = {"sampling": SAMPLE, "roots": ROOTS}

Send = Callable[[CallContext], Awaitable[Mapping[str, Any]]]
StillAllowed = Callable[[], Awaitable[None]]


class ServerWords:
    """Words of a server during one call. *request* is the call as it was sent, *asked_for* the server whose plugins see
    it: the one that the caller named, wherever the call was redirected to. *count* counts one request for the client's
    model against the quota of the caller, and raises RateLimited where that is used up. *still_allowed* raises
    Forbidden if the call may not go on when a person has answered, who may take long. *heard* is awaited once, before
    the client hears the first word."""

    def __init__(
        self,
        request: Request,
        asked_for: str,
        plugins: PluginChain | None,
        note: AuditedCall,
        count: Callable[[], Awaitable[None]],
        still_allowed: StillAllowed,
        pages: PageRules,
        heard: Callable[[], Awaitable[None]],
    ) -> None:
        self.still_allowed = still_allowed
        self._pages = pages
        self._count = count
        self._samples = 0
        self._request = request
        self._asked_for = asked_for
        self._plugins = plugins
        self._note = note
        self._heard: Callable[[], Awaitable[None]] | None = heard
        self._noted: set[tuple[str, str, str, str]] = set()

    @staticmethod
    def none_in(context: CallContext) -> bool:
        """True for a call during which nothing can be said: its caller hears nothing, and answers nothing."""
        return context.caller is SILENT and context.answers is None

    async def around(self, context: CallContext, send: Send) -> Mapping[str, Any]:
        """The result of *send*, which is given the caller to speak to. Raises what *send* raises; InputRequired holds
        the questions as they may be put."""
        caller = context.caller if context.caller is SILENT else _HeardCaller(context.caller, self)
        context = context.having(caller=caller, marks=self._note.marks)
        if context.answers is not None:
            context = context.having(answers=await self._answers(context.answers))
        for _ in range(_MAX_ROUNDS):
            try:
                return await send(context)
            except InputRequired as asked:
                self._note.marks.questioned = True
                questions = {key: await self._question_in(request) for key, request in asked.requests.items()}
                if None not in questions.values():
                    raise InputRequired(questions, asked.request_state, asked.definition) from None
                methods = {each.get("method") for each in asked.requests.values() if isinstance(each, Mapping)}
                if methods - {QUESTION}:
                    # Only for a question is there an answer that says that nobody was asked.
                    raise UpstreamError(f"{self._request.server} sent a request that is not allowed.") from None
                # Nobody is asked, and the server learns so at once.
                cancelled = {key: dict(CANCELLED) for key in asked.requests}
                context = context.having(answers=InputAnswers(cancelled, asked.request_state))
        raise UpstreamError(f"{self._request.server} asked for input too often; the call was cancelled.")

    async def shown(self, method: str, params: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """*params* as the plugins leave them; None if they may not be shown."""
        return await self._filtered(Message(method, params, "client"))

    async def question(self, params: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """A question as it may be put to a person; None if it may not."""
        try:
            named = question_of(self._request.server, params, self._pages)
        except QuestionRefused as why:
            log.warning("%s: a question of the server was not shown to anyone: it %s", self._request.server, why)
            await self.record("cancelled")
            return None
        shown = await self.shown(QUESTION, named)
        if shown is None:
            log.warning(
                "%s: a question of the server was not shown to anyone: a plugin blocked it", self._request.server
            )
            await self.record("cancelled")
        return shown

    async def request(self, method: str, params: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """A request for the client's model or folders as it may be put; None if it may not. Raises RateLimited."""
        kind = KINDS[method]
        try:
            asked = request_of(self._request.server, method, params)
            if kind == "sampling":
                await self._count_sample()
            shown = await self.shown(method, asked)
            if shown is None:
                raise QuestionRefused("was blocked by a plugin")
            return shown
        except QuestionRefused as why:
            log.warning("%s: its request (%s) was not shown to anyone: it %s", self._request.server, method, why)
            await self.record("cancelled", kind)
            return None

    async def _count_sample(self) -> None:
        if self._samples >= _MAX_SAMPLES:
            raise QuestionRefused("is one too many for this call")
        await self._count()
        self._samples += 1

    async def given(self, kind: Kind, answer: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """The answer of a client's model, or its folders, as the server may have it; None if it may not."""
        given = await self._filtered(Message(_METHODS[kind], answer_of(kind, answer), "server"))
        await self.record("cancelled" if given is None else "allowed", kind)
        return given

    async def answer(self, answer: Any) -> Mapping[str, Any]:
        """A person's answer as the server may have it."""
        given = answer if isinstance(answer, Mapping) else CANCELLED
        if isinstance(given.get("content"), Mapping):
            content = await self._filtered(Message(QUESTION, given["content"], "server"))
            given = CANCELLED if content is None else {**given, "content": content}
        match given.get("action"):
            case "accept":
                await self.record("allowed")
            case "decline":
                await self.record("denied")
            case _:
                await self.record("cancelled")
        return given

    def put(self) -> None:
        self._note.marks.questioned = True

    async def record(self, outcome: Any, kind: Kind = "question") -> None:
        """Audit one question, without its text. Raises GatewayError where that is a must and cannot be."""
        async with self._note.beside(kind) as record:
            record.outcome = outcome

    async def _filtered(self, message: Message) -> Mapping[str, Any] | None:
        if self._heard is not None and message.to == "client":
            heard, self._heard = self._heard, None
            await heard()
        if self._plugins is None:
            return message.params
        stages: list[Stage] = []
        shown = await self._plugins.on_message(self._asked_for, self._request, message, stages)
        for stage in stages:
            key = (stage.handler, stage.phase, stage.outcome, stage.note)
            if key not in self._noted and len(self._noted) < _MAX_STAGES:
                self._noted.add(key)
                self._note.trail.append(stage)
        return shown

    async def _question_in(self, request: Any) -> Mapping[str, Any] | None:
        if not isinstance(request, Mapping):
            return None
        params: Mapping[str, Any] | None
        match request.get("method"):
            case "elicitation/create":
                params = await self.question(request.get("params") or {})
            case "sampling/createMessage" | "roots/list" as method:
                params = await self.request(method, request.get("params") or {})
            case _:
                return request  # the door refuses it
        return None if params is None else {**request, "params": params}

    async def _answers(self, answers: InputAnswers) -> InputAnswers:
        """Raises Forbidden where an answer may not go to the server, and there is no other that says so."""
        passed: dict[str, Any] = {}
        for key, answer in answers.responses.items():
            kind = kind_of(answer)
            given = await (self.answer(answer) if kind == "question" else self.given(kind, answer))
            if given is None:
                raise Forbidden(f"What the client gave {self._request.server} was blocked, so it was not called.")
            passed[key] = given
        return InputAnswers(passed, answers.request_state)


class _HeardCaller(PassingCaller):
    """*caller*, as far as *words* may reach it."""

    def __init__(self, caller: Caller, words: ServerWords) -> None:
        super().__init__(caller)
        self._words = words

    async def progress(self, progress: float, total: float | None, message: str | None) -> None:
        """A text that may not be shown is left out; the progress itself is not."""
        if message is not None:
            shown = await self._words.shown(PROGRESS, {"message": message})
            message = text if shown is not None and isinstance(text := shown.get("message"), str) else None
        await self._caller.progress(progress, total, message)

    async def log(self, level: str, data: object, logger: str | None) -> None:
        params = {"data": data} if logger is None else {"data": data, "logger": logger}
        shown = await self._words.shown(LOG, params)
        if shown is None:
            return
        name = shown.get("logger")
        await self._caller.log(level, shown.get("data"), name if isinstance(name, str) else None)

    async def ask(self, method: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
        """As Caller. Raises Forbidden if the call may not go on after the answer (FACE-79)."""
        answer = await self._ask(method, params)
        await self._words.still_allowed()
        return answer

    async def _ask(self, method: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
        self._words.put()
        if method in _METHODS.values():
            return await self._ask_client(method, params)
        try:
            question = await self._words.question(params)
            if question is None:
                return CANCELLED
            return await self._words.answer(await self._caller.ask(method, question))
        except GatewayError as error:
            log.warning("a question of a server was cancelled: %s", error.code)
            return CANCELLED

    async def _ask_client(self, method: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
        """The answer of the client's model, or its folders. Raises CannotAsk where there is none."""
        kind = KINDS[method]
        try:
            request = await self._words.request(method, params)
            if request is None:
                raise CannotAsk(method)
            try:
                answer = await self._caller.ask(method, request)
            except CannotAsk as unable:
                await self._words.record("denied" if unable.rejected else "cancelled", kind)
                raise
            given = await self._words.given(kind, answer)
        except GatewayError as error:
            log.warning("a request of a server (%s) was cancelled: %s", kind, error.code)
            raise CannotAsk(method) from None
        if given is None:
            raise CannotAsk(method)
        return given
