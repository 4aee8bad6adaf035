"""``python -m bench.fuzz_validation``: can a hostile schema or hostile arguments hold the event loop (EXEC-8)?

Hypothesis draws pairs of a schema and arguments, small twisted ones and ones blown up on purpose; each is compiled,
repaired and checked as the gateway does it. Times are CPU time of the thread: what the loop would have stood still.
"""

import argparse
import gc
import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from bench.catalogs import ROOT
from tests.schemas.test_validation import NAMES, SCHEMAS, VALUES
from wicketgate.errors import ArgsInvalid, GatewayError, SchemaInvalid
from wicketgate.schemas.validation import compile_schema, is_bulky_json

GOAL_MS = 50.0
# The doors take no larger requests.
MAX_CHARS = 4 << 20

_SIZES = st.sampled_from([1, 3, 10, 30, 90, 300, 1_000, 3_000, 9_000])
_PATTERNS = st.sampled_from(
    [
        "^(a+)+$",
        "[ab]*c",
        "[ab]*[ac]*d",
        "^[a-z]+$",
        "(?:[a-z]{1,9}1){60}",
        "[\u0100-\uffff]",
        "(?:a|b|c){64}",
        "a?",
        "b",
    ]
)
_WORDS = st.sampled_from(["a", "name_of_a_thing_1", "name_of_a_thing_2", "é", "1", "42", "[[1]]", "\ud800"])
_NUMBERS = st.sampled_from([0, -1, 2**61 - 1, 10**400, 1e300, 5e-324, 0.1, 1.0])


@st.composite
def wide_schemas(draw: st.DrawFn) -> dict[str, Any]:
    """One schema at the place ``a``, in a form that is dear at some size."""
    n = draw(_SIZES)
    small: Any = draw(st.sampled_from([{}, {"type": "integer"}, {"type": "string"}, {"items": {"type": "null"}}, True]))
    words = [f"{draw(_WORDS)}{number}" for number in range(min(n, 30))]
    closed = {"properties": dict.fromkeys(words, small), "additionalProperties": False, "required": words[:3]}
    few = max(n // (len(words) + 3), 1)
    pattern = draw(_PATTERNS)
    forms: list[Callable[[], Any]] = [
        lambda: {draw(st.sampled_from(["allOf", "anyOf", "oneOf", "prefixItems"])): [small] * n},
        lambda: {draw(st.sampled_from(["allOf", "anyOf", "oneOf"])): [closed] * few},
        lambda: {"properties": {f"{words[0]}{number}": small for number in range(n)}, "additionalProperties": False},
        lambda: {"items": {"allOf": [small] * min(n, 900)}, "unevaluatedItems": False},
        lambda: {"prefixItems": [small] * n, "unevaluatedItems": False},
        lambda: {"allOf": [{"allOf": [closed] * min(few, 90)}], "unevaluatedProperties": False},
        lambda: {"enum": [f"{words[0]}{number}" for number in range(n)]},
        lambda: {"enum": [[number] * 9 for number in range(n // 10)]},
        lambda: {"uniqueItems": True, "contains": small, "minContains": n},
        lambda: {"items": {"multipleOf": abs(draw(_NUMBERS)) or 1}},
        lambda: {"items": {"dependentRequired": {"a": words * few}}},
        lambda: {"items": {"pattern": pattern * draw(st.sampled_from([1, 2, 30]))}, "maxItems": 3},
        lambda: {"patternProperties": {f"{pattern}{number}": small for number in range(min(n, 300))}},
        lambda: {"properties": {f"p{number}": {"pattern": f"{pattern}{number}"} for number in range(n // 3)}},
        lambda: {"propertyNames": {"anyOf": [{"pattern": pattern}, {"enum": words}]}},
        lambda: {"$ref": "#/$defs/chain0"},
        lambda: {"items": {"$ref": "#deep"}, "type": draw(st.sampled_from(["array", "string", "integer", "object"]))},
        lambda: {"anyOf": [{"$ref": f"#/$defs/chain{number}"} for number in range(min(n, 300))]},
        lambda: {"$dynamicRef": "#node", "unevaluatedProperties": False},
    ]
    length = min(n, 600)
    width = draw(st.integers(1, 6))
    chain: dict[str, Any] = {
        f"chain{number}": {"anyOf": [{"$ref": f"#/$defs/chain{number + 1}"}] * width} for number in range(length)
    }
    chain[f"chain{length}"] = small
    deep: Any = {"$anchor": "deep", **(small if isinstance(small, dict) else {})}
    for _ in range(draw(st.integers(0, 40))):
        deep = draw(st.sampled_from([{"properties": {"a": deep}}, {"items": deep}, {"not": deep}]))
    node = {"$dynamicAnchor": "node", "properties": {"a": {"$dynamicRef": "#node"}}, "$id": draw(_WORDS)}
    named = {f"n{number}": {"$id": f"urn:{number}", "$anchor": "x"} for number in range(min(n, 400))}
    some = draw(st.sampled_from([chain, {}])) | draw(st.sampled_from([named, {}]))
    return {
        "properties": {"a": draw(st.sampled_from(forms))()},
        "$defs": {
            "deep": deep,
            "node": node,
            "chain0": {},
            **{f"chain{each}": {} for each in range(min(n, 300))},
            **some,
        },
    }


@st.composite
def wide_arguments(draw: st.DrawFn) -> dict[str, Any]:
    n = draw(_SIZES)
    word, number = draw(_WORDS), draw(_NUMBERS)
    text = word * draw(st.sampled_from([1, 16, 50, 1_000, 50_000]))
    nested: Any = 1
    for _ in range(min(n, 62)):
        nested = [nested] if draw(st.booleans()) else {"a": nested}
    value = draw(
        st.sampled_from(
            [
                [number] * n,
                [(2**61 - 1) * each for each in range(n)],
                [{"a": each, word: text[:50]} for each in range(n // 2)],
                {f"{word}{each}": number for each in range(n)},
                [text] * min(n, MAX_CHARS // max(len(text), 1)),
                text,
                json.dumps([{"a": "1"}] * n),
                nested,
            ]
        )
    )
    return {"a": value, **({word: text} if draw(st.booleans()) else {})}


ANY_SCHEMA = st.one_of(
    wide_schemas(),
    wide_schemas(),
    SCHEMAS.map(lambda schema: {"allOf": [schema], "$defs": {"d": {"type": ["object", "integer"]}}}),
    st.dictionaries(st.sampled_from(["type", "properties", "items", "$ref", "$id", "required", "allOf"]), VALUES),
)
ANY_ARGUMENTS = st.one_of(wide_arguments(), wide_arguments(), st.dictionaries(NAMES, VALUES, max_size=3), VALUES)


@dataclass
class Seen:
    """*on_loop* leaves out what is bulky, which the gateway does in a thread; times in ms with what took them."""

    pairs: int = 0
    schemas_refused: int = 0
    arguments_refused: int = 0
    raised: list[str] = field(default_factory=list)
    slowest: dict[str, tuple[float, str]] = field(default_factory=dict)
    over_goal: dict[str, int] = field(default_factory=dict)

    def note(self, what: str, ms: float, of: object) -> None:
        if ms > self.slowest.get(what, (0.0, ""))[0]:
            self.slowest[what] = (ms, repr(of)[:300])
        self.over_goal[what] = self.over_goal.get(what, 0) + (ms > GOAL_MS)


def fuzz(examples: int, number: int) -> Seen:
    seen = Seen()

    @seed(number)
    @settings(
        max_examples=examples,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(ANY_SCHEMA, ANY_ARGUMENTS)
    def pair(schema: object, args: object) -> None:
        seen.pairs += 1
        try:
            _try(schema, args, seen)
        except Exception as error:
            seen.raised.append(f"{type(error).__name__} for {schema!r:.300} and {args!r:.300}")

    pair()
    return seen


def _try(schema: object, args: object, seen: Seen) -> None:
    # Hypothesis keeps much alive, and what going through that costs is not the validator's.
    if seen.pairs % 100 == 0:
        gc.unfreeze()
        gc.collect()
    gc.freeze()
    where = "in a thread" if is_bulky_json(schema) else "on the loop"
    began = time.thread_time()
    try:
        validator = compile_schema(schema, path="fuzz:pair@1")
    except SchemaInvalid:
        seen.schemas_refused += 1
        return
    finally:
        seen.note(f"compile {where}", (time.thread_time() - began) * 1e3, schema)
    where = "in a thread" if is_bulky_json(args) else "on the loop"
    began = time.thread_time()
    mended, _ = validator.repair(args)
    seen.note(f"repair {where}", (time.thread_time() - began) * 1e3, (schema, args))
    for sent in [args] if mended is args else [args, mended]:
        began = time.thread_time()
        try:
            validator.check(sent, path="fuzz:pair@1")
        except GatewayError as error:
            seen.arguments_refused += isinstance(error, ArgsInvalid)
        seen.note(f"check {where}", (time.thread_time() - began) * 1e3, (schema, args))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--examples", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=4)
    parser.add_argument("--json", type=Path, default=ROOT / "bench" / "out" / "fuzz_validation.json")
    options = parser.parse_args()
    seen = fuzz(options.examples, options.seed)
    print(f"pairs tried: {seen.pairs:,}; schemas refused: {seen.schemas_refused:,}", end="; ")
    print(f"arguments refused: {seen.arguments_refused:,}; raised something else: {len(seen.raised)}")
    for what, (ms, of) in sorted(seen.slowest.items()):
        print(f"slowest {what}: {ms:.1f} ms ({seen.over_goal[what]} above {GOAL_MS:g} ms)  {of[:120]}")
    for each in seen.raised[:5]:
        print(each)
    options.json.parent.mkdir(parents=True, exist_ok=True)
    options.json.write_text(json.dumps(vars(seen), indent=1) + "\n")


if __name__ == "__main__":
    main()
