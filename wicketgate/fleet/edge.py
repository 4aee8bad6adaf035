"""The edge of one upstream: all that it says comes in here, before a plugin or a client sees it (UP-57, UP-58).

The gate's own credentials for the upstream are masked, because a service may repeat its request in an answer. Keys
``wicketgate/...`` are dropped from every ``_meta``: only the gate itself writes them. A value in which neither is found
stays the same object, which costs one encoding of it and a search for each form of a credential.
"""

import asyncio
import re
from base64 import b64decode, b64encode
from binascii import Error as NotBase64
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import msgspec

from wicketgate.catalog.former import with_former
from wicketgate.catalog.selectable import OPERATION_KEY
from wicketgate.catalog.shown_words import visible
from wicketgate.errors import Forbidden, InputRequired, UpstreamRefused
from wicketgate.fleet import spelling
from wicketgate.log_text import MASK
from wicketgate.ports import SILENT, CallContext, Caller, PassingCaller
from wicketgate.results.bulk import base64_bytes
from wicketgate.results.firewall import is_bulky

T = TypeVar("T")
Failure = TypeVar("Failure", bound=Exception)

SHORTEST_SECRET = 8
"""Shorter values are not masked: they stand in ordinary text by chance, and masking would destroy it."""

_OURS = "wicketgate/"
_OURS_ENCODED = b'"wicketgate/'
_MAX_FETCHED = 16
_CUT = "… (cut)"
_DEPTH = 5
_SLICE = 1_000

_BYTES = ("blob", "data")
_SCHEMES = ("basic", "bearer", "token", "apikey")
_SHORT_CHARS = 4_096
_FEW = 4
_FEW_ITEMS = 100

_encode = msgspec.json.Encoder().encode


class KnownSecrets:
    """The credentials of the gate for one upstream: the configured *values*, and those that are fetched at run time, of
    which the last sixteen count. Values that are only *guessed* to be secret are not masked in declarations (OPS-475):
    *certain* are the others."""

    def __init__(self, values: Iterable[str] = (), guessed: Iterable[str] = ()) -> None:
        certain, guesses = tuple(values), tuple(guessed)
        self._values = certain + guesses
        self.certain: KnownSecrets = KnownSecrets(certain) if guesses else self
        self._fetched: deque[str] = deque(maxlen=_MAX_FETCHED)
        self._spelt: dict[str, spelling.Spelt] = {}
        self.forms: tuple[str, ...] = ()
        self.probes: tuple[bytes, ...] = ()
        self._patterns: tuple[re.Pattern[str], ...] = ()
        self._prepare()

    def learn(self, value: str) -> None:
        """Mask *value* too from now on."""
        if value not in self._fetched:
            self._fetched.append(value)
            self._prepare()
            if self.certain is not self:
                self.certain.learn(value)

    def mask(self, text: str) -> str:
        """Returns *text* with a mark in the place of each credential."""
        for pattern in self._patterns:
            text = pattern.sub(MASK, text)
        return text

    def mask_base64(self, text: str) -> str | None:
        """Returns *text*, which may be bytes in base64, with a mark in the place of each credential in the bytes; None
        if it holds none in that way."""
        data = base64_bytes(text)
        if not data:
            return None
        held = data.decode("utf-8", "surrogateescape")
        masked = self.mask(held)
        return None if masked == held else b64encode(masked.encode("utf-8", "surrogateescape")).decode()

    def mask_cut(self, text: str) -> str:
        """As ``mask``, for a text that may have been cut within a credential."""
        text = self.mask(text)
        whole, mark = (text.removesuffix(_CUT), _CUT) if text.endswith(_CUT) else (text, "")
        for form in self.forms:
            # The earliest place from which the rest of the text is a beginning of the form.
            head = form[:SHORTEST_SECRET]
            at = whole.find(head, max(0, len(whole) - len(form) + 1))
            while at >= 0:
                if form.startswith(whole[at:]):
                    return whole[:at] + MASK + mark
                at = whole.find(head, at + 1)
        return text

    def _prepare(self) -> None:
        parts = {part for value in (*self._values, *self._fetched) for part in _parts(value)}
        parts = {part for part in parts if len(part) >= SHORTEST_SECRET}
        # A pattern takes milliseconds to make, so those that are known stay.
        self._spelt = {part: self._spelt.get(part) or spelling.spelt(part) for part in parts}
        # Longest first, so that a credential that contains another is masked whole.
        known = [self._spelt[part] for part in sorted(parts, key=lambda part: (-len(part), part))]
        self._patterns = tuple(each.pattern for each in known)
        self.forms = tuple(sorted({form for each in known for form in each.forms}, key=lambda form: (-len(form), form)))
        probes = {probe for each in known for probe in each.probes}
        # What holds a probe holds all that stands within it, so that few are left to look for.
        self.probes = tuple(sorted(one for one in probes if not any(two != one and two in one for two in probes)))


def _parts(value: str) -> Iterator[str]:
    scheme, blank, rest = value.partition(" ")
    if not blank or scheme.lower() not in _SCHEMES:
        yield value
    match scheme.lower():
        case "basic" if blank:
            yield rest.strip()
            yield rest.strip().rstrip("=")
            try:
                pair = b64decode(rest.strip(), validate=True).decode()
            except (NotBase64, ValueError):
                return
            yield pair
            yield pair.partition(":")[2]
        case "bearer" | "token" | "apikey" if blank:
            yield rest.strip()
        case _ if "=" in value:  # cookies, and parameters of an authorization scheme
            yield from (piece.partition("=")[2].strip().strip('"') for piece in re.split(r"[;,]", value))


@dataclass(frozen=True, slots=True)
class CleanListing(Generic[T]):
    """Definitions as an upstream *declared* them, *cleaned* of what the *probes* of its credentials find."""

    declared: Sequence[T] = ()
    cleaned: Sequence[T] = ()
    probes: tuple[bytes, ...] | None = None


class Edge:
    """Cleans what one upstream says."""

    def __init__(self, secrets: KnownSecrets | None = None) -> None:
        self.secrets = secrets or KnownSecrets()
        self.declared: Edge = self if self.secrets.certain is self.secrets else Edge(self.secrets.certain)
        """Cleans declarations and questions, which hold names, schemas and choices that come back."""

    def leaves(self, result: Mapping[str, Any]) -> bool:
        """True if *result* has nothing to clean, and that could be found out at once."""
        if self.secrets.forms and result.get("isError"):
            return False
        return _is_small(result) and not self._touched(result)

    async def result(self, result: Mapping[str, Any]) -> Mapping[str, Any]:
        """A result of the upstream, cleaned. Its error texts may have been cut within a credential."""
        cleaned = await self.clean(result)
        if not self.secrets.forms or not cleaned.get("isError"):
            return cleaned
        if is_bulky(cleaned):
            return await asyncio.to_thread(self._with_cut_texts, cleaned)
        return self._with_cut_texts(cleaned)

    async def failure(self, error: Failure) -> Failure | Forbidden | InputRequired | UpstreamRefused:
        """A failure of a call, or its questions, with the upstream's words cleaned; *error* itself if that changes
        nothing."""
        if isinstance(error, UpstreamRefused):
            return await self._refused(error)
        if isinstance(error, Forbidden):  # it names the server's scopes
            return Forbidden(self.cleaned(error.message), details=self.cleaned(error.details))
        if isinstance(error, InputRequired):
            requests = await self.declared.clean(error.requests)
            return (
                error if requests is error.requests else InputRequired(requests, error.request_state, error.definition)
            )
        return error

    async def clean(self, value: T) -> T:
        """*value*, the same object if there is nothing to clean."""
        if is_bulky(value):
            return await asyncio.to_thread(self.cleaned, value, in_parts=True)
        return self.cleaned(value)

    async def said(self, value: T) -> T:
        """As ``clean``, for words that a client shows unchanged: without hidden and control characters (FACE-164)."""
        cleaned = await self.clean(value)
        return await asyncio.to_thread(visible, cleaned) if is_bulky(cleaned) else visible(cleaned)

    def cleaned(self, value: T, *, kept: str = "", in_parts: bool = False) -> T:
        """As ``clean``, now. *kept*: our key that stays. *in_parts*: for a large value, so that other threads run
        between the parts."""
        touched = any(map(self._touched, _pieces(value))) if in_parts else self._touched(value)
        return _cleaned(value, self.secrets, kept) if touched else value

    async def listing(self, items: Sequence[T]) -> Sequence[T]:
        """Definitions that the upstream declared."""

        return (await self.listed(items, CleanListing())).cleaned

    async def listed(self, items: Sequence[T], former: "CleanListing[T]") -> "CleanListing[T]":
        """As ``listing``. What is as it was in *former* is compared and not cleaned again (CARD-39)."""

        def cleaned() -> CleanListing[T]:
            declared, probes = with_former(items, former.declared), self.declared.secrets.probes
            # Other credentials may stand in what was clean before.
            as_before = probes is former.probes
            if as_before and declared is former.declared:
                return former
            known = dict(zip(map(id, former.declared), former.cleaned, strict=True)) if as_before else {}
            found = [
                known[id(item)] if id(item) in known else self.declared.cleaned(item, kept=OPERATION_KEY)
                for item in declared
            ]
            untouched = all(map(lambda one, other: one is other, found, declared))
            return CleanListing(declared, declared if untouched else found, probes)

        return await asyncio.to_thread(cleaned) if len(items) > _FEW_ITEMS or is_bulky(items) else cleaned()

    def heard_by(self, context: CallContext) -> CallContext:
        """*context* with a caller that is given what the upstream says while the call runs, cleaned."""
        if context.caller is SILENT:
            return context  # an upstream knows this one by identity
        return context.having(caller=self.hearing(context.caller))

    def hearing(self, caller: Caller) -> Caller:
        """*caller*, who is given what the upstream says, cleaned."""
        return _EdgeCaller(caller, self)

    async def _refused(self, refused: UpstreamRefused) -> UpstreamRefused:
        refusal, data = visible(self.secrets.mask_cut(refused.refusal)), await self.clean(refused.data)
        if refusal == refused.refusal and data is refused.data:
            return refused
        other = UpstreamRefused(
            refused.message,
            code=refused.upstream_code,
            refusal=refusal,
            data=data,
            name=refused.name,
            status=refused.status,
        )
        other.path = refused.path
        return other

    def _with_cut_texts(self, result: Mapping[str, Any]) -> Mapping[str, Any]:
        content = result.get("content")
        if not isinstance(content, list):
            return result
        blocks = [
            {**block, "text": self.secrets.mask_cut(block["text"])}
            if isinstance(block, Mapping) and isinstance(block.get("text"), str)
            else block
            for block in content
        ]
        return result if blocks == content else {**result, "content": blocks}

    def _touched(self, value: object) -> bool:
        try:
            data = _encode(value)
        except (TypeError, ValueError, OverflowError, RecursionError):
            return True  # halves of surrogate pairs, or what is no JSON: looked at by walking
        if _OURS_ENCODED in data:
            return True
        for probe in self.secrets.probes:  # noqa: SIM110 - a generator costs as much as three searches
            if probe in data:
                return True
        return False


class _EdgeCaller(PassingCaller):
    """*caller*, which is given what *edge* leaves."""

    def __init__(self, caller: Caller, edge: Edge) -> None:
        super().__init__(caller)
        self._edge = edge

    async def progress(self, progress: float, total: float | None, message: str | None) -> None:
        if message is not None:
            message = await self._edge.said(message)
        await self._caller.progress(progress, total, message)

    async def log(self, level: str, data: object, logger: str | None) -> None:
        if logger is not None:
            logger = await self._edge.said(logger)
        await self._caller.log(level, await self._edge.said(data), logger)

    async def ask(self, method: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
        return await self._caller.ask(method, await self._edge.declared.clean(params))


def _is_small(result: Mapping[str, Any]) -> bool:
    """True for the most usual results: a few short texts. Others are weighed, which takes longer."""
    for key, value in result.items():
        kind = type(value)
        if key == "content":
            if kind is not list or len(value) > _FEW:
                return False
            for block in value:
                if type(block) is not dict or len(block) != 2:
                    return False
                text = block.get("text")
                if type(text) is not str or len(text) > _SHORT_CHARS:
                    return False
        elif kind is not bool and (kind is not str or len(value) > _SHORT_CHARS):
            return False
    return True


def _pieces(value: object) -> Iterator[object]:
    """Yields the parts of a large value: no part is long, but for a single text."""
    waiting: list[tuple[object, int]] = [(value, 0)]
    while waiting:
        each, depth = waiting.pop()
        if depth < _DEPTH and isinstance(each, Mapping):
            yield list(each)
            waiting += [(inner, depth + 1) for inner in each.values()]
        elif depth < _DEPTH and isinstance(each, list | tuple):
            if len(each) <= _SLICE:
                waiting += [(inner, depth + 1) for inner in each]
            else:
                waiting += [(each[start : start + _SLICE], _DEPTH) for start in range(0, len(each), _SLICE)]
        else:
            yield each


def _cleaned(value: Any, secrets: KnownSecrets, kept: str) -> Any:
    """A copy without credentials, and without our keys in any ``_meta``; without recursion, because it may be nested
    deeply."""
    root: list[Any] = [value]
    waiting: list[tuple[Any, Any]] = [(root, 0)]
    while waiting:
        holder, place = waiting.pop()
        each = holder[place]
        if isinstance(each, str):
            held = secrets.mask_base64(each) if place in _BYTES else None
            known = secrets.certain if place == "uri" else secrets
            holder[place] = known.mask(each) if held is None else held
        elif isinstance(each, Mapping):
            holder[place] = copy = {
                _masked(key, secrets): _without_ours(key, inner, kept) for key, inner in each.items()
            }
            if copy.get("_meta") == {} and each.get("_meta") != {}:
                del copy["_meta"]
            waiting.extend((copy, key) for key in copy)
        elif isinstance(each, list | tuple):
            holder[place] = items = list(each)
            waiting.extend((items, index) for index in range(len(items)))
        elif isinstance(each, int) and not isinstance(each, bool) and 0 < each < 10**40 and str(each) in secrets.forms:
            holder[place] = MASK
    return root[0]


def _masked(key: Any, secrets: KnownSecrets) -> Any:
    return secrets.mask(key) if isinstance(key, str) else key


def _without_ours(key: object, inner: Any, kept: str) -> Any:
    if key != "_meta" or not isinstance(inner, Mapping):
        return inner
    return {
        name: value
        for name, value in inner.items()
        if not isinstance(name, str) or not name.startswith(_OURS) or name == kept
    }
