"""``python -m bench.validators``: what validating costs a call, ours beside other engines, and whom a schema can hold.

Imports that not every environment has stand inside the functions that need them: this file runs in ours and, for the
engines of ``PEERS``, which have their own virtual environment below ``bench/out``.
"""

import argparse
import hashlib
import importlib
import json
import select
import statistics
import subprocess
import sys
import time
import venv
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bench.catalogs import MISSING, ROOT, corpus, routing_data
from bench.machine import machine, write
from bench.table import NONE, figure, table

REQUIREMENTS = ("fastjsonschema==2.22.3", "jsonschema-rs==0.60.3")
OURS = ("ours", "ours, errors alone", "jsonschema, compiled once", "jsonschema, at each call")
PEERS = ("jsonschema-rs", "jsonschema-rs, yes or no", "fastjsonschema")
TIMES = ("compile_us", "valid_us", "invalid_us")
TOOLS = 60
CALLS = 20
ROUNDS = 7
BOUND_S = 2.0

# Held by the same things as the row above them.
_NO_OTHER_WHEN_HOSTILE = ("ours, errors alone", "jsonschema, at each call")
_INSTALL_BOUND_S = 300
_ANSWER_BOUND_S = 120.0


@dataclass(frozen=True, slots=True)
class Case:
    """A tool's schema, arguments that fit and arguments that do not."""

    schema: dict[str, Any]
    valid: dict[str, Any]
    invalid: dict[str, Any]


class NoAnswer(Exception):
    """The engine's process did not answer in time, or ended; it is gone."""


# -- in the process of an engine


def engine(name: str) -> Callable[[Any], Callable[[Any], int]]:
    """From a schema to a check, from arguments to the number of errors; all errors where the engine can."""
    match name:
        case "ours":
            return _ours
        case "ours, errors alone":
            return _ours_errors_alone
        case "jsonschema, compiled once":
            return _jsonschema
        case "jsonschema, at each call":
            return lambda schema: lambda args: _jsonschema(schema)(args)
        case "jsonschema-rs":
            rs = importlib.import_module("jsonschema_rs")
            # Unless it is told, it fetches references.
            return lambda schema: _count(rs.validator_for(schema, offline=True).iter_errors)
        case "jsonschema-rs, yes or no":
            rs = importlib.import_module("jsonschema_rs")
            return lambda schema: _is_invalid(rs.validator_for(schema, offline=True).is_valid)
        case "fastjsonschema":
            return _fastjsonschema
        case _:
            raise ValueError(f"no such engine: {name}")


def _ours(schema: Any) -> Callable[[Any], int]:
    from wicketgate.errors import ArgsInvalid
    from wicketgate.schemas.validation import compile_schema

    validator = compile_schema(schema, path="bench:tool@1")

    def check(args: Any) -> int:
        try:
            validator.check(args, path="bench:tool@1")
        except ArgsInvalid as refusal:
            return len((refusal.details or {})["errors"])
        return 0

    return check


def _ours_errors_alone(schema: Any) -> Callable[[Any], int]:
    """Without measuring the arguments first, and without the answer that teaches."""
    from wicketgate.schemas.counted_engine import CountedEngine
    from wicketgate.schemas.foreign_schema import read_schema

    counted = CountedEngine(read_schema(schema, path="bench:tool@1"))
    return lambda args: len(counted.errors(args, 10_000, 21))


def _jsonschema(schema: Any) -> Callable[[Any], int]:
    from jsonschema import Draft202012Validator
    from jsonschema.validators import validator_for

    cls: Any = validator_for(schema, default=Draft202012Validator)
    cls.check_schema(schema)
    return _count(cls(schema).iter_errors)


def _fastjsonschema(schema: Any) -> Callable[[Any], int]:
    fast = importlib.import_module("fastjsonschema")
    # Defaults would be written into the arguments.
    validate = fast.compile(schema, use_default=False, fast_fail=False)
    one, many = fast.JsonSchemaValueException, fast.JsonSchemaValuesException

    def check(args: Any) -> int:
        try:
            validate(args)
        except many as refusal:
            return len(refusal.errors)
        except one:
            return 1
        return 0

    return check


def _count(iter_errors: Callable[[Any], Any]) -> Callable[[Any], int]:
    return lambda args: len(list(iter_errors(args)))


def _is_invalid(is_valid: Callable[[Any], bool]) -> Callable[[Any], int]:
    return lambda args: not is_valid(args)


def serve() -> None:
    """Answer each line of stdin, one request, with a line of stdout; the first line says that it is ready."""
    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        try:
            compile_ = engine(request["engine"])
            # What comes with the first use, imports and meta-schemas, is nobody's cost a tool.
            compile_({"type": "object"})({})
            answer = _timed(compile_, [Case(**case) for case in request["cases"]], request["calls"])
        except Exception as error:
            answer = {"failed": type(error).__name__}
        print(json.dumps(answer), flush=True)


def _timed(compile_: Callable[[Any], Callable[[Any], int]], cases: Sequence[Case], calls: int) -> dict[str, Any]:
    """By case: CPU microseconds of this thread, and the number of errors."""
    answer: dict[str, Any] = {key: [] for key in (*TIMES, "valid_errors", "invalid_errors")}
    for case in cases:
        began = time.thread_time()
        check = compile_(case.schema)
        answer["compile_us"].append((time.thread_time() - began) * 1e6)
        for kind, args in (("valid", case.valid), ("invalid", case.invalid)):
            answer[f"{kind}_errors"].append(int(check(args)))
            began = time.thread_time()
            for _ in range(calls):
                check(args)
            answer[f"{kind}_us"].append((time.thread_time() - began) * 1e6 / max(calls, 1))
    return answer


# -- in the process that asks


class Engines:
    """A process in which engines run, one request at a time."""

    def __init__(self, python: Path | str) -> None:
        self._process = subprocess.Popen(
            [python, "-m", "bench.validators", "--serve"], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        self._read(_ANSWER_BOUND_S)

    def ask(self, name: str, cases: Sequence[Case], calls: int, bound_s: float = _ANSWER_BOUND_S) -> dict[str, Any]:
        """The figures, or ``{"failed": the exception's name}``. Raises NoAnswer after *bound_s*."""
        assert self._process.stdin
        request = {"engine": name, "cases": [asdict(case) for case in cases], "calls": calls}
        self._process.stdin.write(json.dumps(request).encode() + b"\n")
        self._process.stdin.flush()
        return self._read(bound_s)

    def _read(self, bound_s: float) -> dict[str, Any]:
        out = self._process.stdout
        assert out
        # Answers and requests alternate, so nothing waits in the buffer.
        line = out.readline() if select.select([out], [], [], bound_s)[0] else b""
        if not line:
            self.close()
            raise NoAnswer
        answer: dict[str, Any] = json.loads(line)
        return answer

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe and not pipe.closed:
                pipe.close()


def measure(engines: Mapping[str, Engines], cases: Sequence[Case], calls: int, rounds: int) -> list[dict[str, Any]]:
    """One row an engine: for each time the median over *cases* of the median over *rounds*, and the slowest case's.

    The engines take turns at every round; the first one only warms up. *unlike* counts verdicts that are not the
    case's own.
    """
    answers: dict[str, list[dict[str, Any]]] = {name: [] for name in engines}
    for _ in range(rounds + 1):
        for name, process in engines.items():
            answers[name].append(process.ask(name, cases, calls))
    rows: list[dict[str, Any]] = []
    for name, given in answers.items():
        row: dict[str, Any] = {"engine": name}
        rows.append(row)
        if failed := next((answer["failed"] for answer in given if "failed" in answer), None):
            row["failed"] = failed
            continue
        for key in TIMES:
            by_case = [statistics.median(each) for each in zip(*(answer[key] for answer in given[1:]), strict=True)]
            row |= {key: statistics.median(by_case), f"{key}_worst": max(by_case)}
        row["unlike"] = sum(map(bool, given[0]["valid_errors"])) + given[0]["invalid_errors"].count(0)
    return rows


def hostile(pythons: Mapping[str, Path | str], cases: Mapping[str, Case], bound_s: float) -> list[dict[str, Any]]:
    """One row an engine and case: compiled, and checked once with both arguments, in a process of its own.

    A process that does not answer within *bound_s* is ended. *wall_ms* is how long the answer, or the end, took.
    """
    rows: list[dict[str, Any]] = []
    for what, case in cases.items():
        for name, python in pythons.items():
            row: dict[str, Any] = {"what": what, "engine": name}
            with closing(Engines(python)) as process:
                process.ask(name, [], 0)
                began = time.perf_counter()
                try:
                    answer = process.ask(name, [case], 0, bound_s)
                    row["outcome"] = answer.get("failed") or (
                        "refused" if answer["invalid_errors"][0] else "let through"
                    )
                except NoAnswer:
                    row["outcome"] = "no answer"
                row["wall_ms"] = (time.perf_counter() - began) * 1e3
            rows.append(row)
    return rows


# -- the cases


def real_cases(data: Path, count: int) -> list[Case]:
    """At most *count* tools, drawn by digest among those with arguments that can be made up to fit (so jsonschema)."""
    tools = sorted(corpus(8_000, 0, data).definitions, key=lambda tool: hashlib.sha256(tool["name"].encode()).digest())
    found: list[Case] = []
    for tool in tools:
        if len(found) == count:
            break
        found.extend(_made_case(tool["inputSchema"]))
    return found


def _made_case(schema: dict[str, Any]) -> Iterator[Case]:
    from jsonschema import Draft202012Validator, SchemaError

    if not schema.get("properties"):
        return
    valid = _filled(schema)
    *most, last = valid
    # One name missing where one is required, and one of a wrong type.
    invalid = {name: valid[name] for name in most if name not in schema.get("required", [])[:1]}
    invalid[last] = {"wrong": True} if not isinstance(valid[last], dict) else "wrong"
    try:
        Draft202012Validator.check_schema(schema)
    except SchemaError:
        return
    validator = Draft202012Validator(schema)
    if validator.is_valid(valid) and not validator.is_valid(invalid):
        yield Case(schema, valid, invalid)


def _filled(schema: Mapping[str, Any]) -> Any:
    if schema.get("enum"):
        return schema["enum"][0]
    match schema.get("type"):
        case "object":
            return {name: _filled(each) for name, each in schema.get("properties", {}).items()}
        case "array":
            return [_filled(schema.get("items", {}))] * 2
        case "integer":
            return 3
        case "number":
            return 1.5
        case "boolean":
            return True
        case _:
            return "some text"


def _object(required: Sequence[str], **properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(required)}


_TEXT = {"type": "string"}
_LINE = _object(["sku", "count"], sku={"type": "string", "pattern": "^[A-Z]{3}-[0-9]+$"}, count={"$ref": "#/$defs/n"})

BUILT_IN = (
    Case(  # closed, as zod writes it
        {
            **_object(["owner", "repo", "title"], owner=_TEXT, repo=_TEXT, title=_TEXT, body=_TEXT)
            | {"$schema": "http://json-schema.org/draft-07/schema#", "additionalProperties": False}
        },
        {"owner": "octo", "repo": "site", "title": "Dead link", "body": "On the first page."},
        {"owner": "octo", "repo": "site", "titel": "Dead link"},
    ),
    Case(  # optional members, as pydantic writes them
        _object(
            ["query"],
            query={"type": "string", "minLength": 1, "maxLength": 400},
            limit={"type": "integer", "minimum": 1, "maximum": 100, "default": 10},
            since={"anyOf": [{"type": "string"}, {"type": "null"}], "default": None},
            labels={"anyOf": [{"type": "array", "items": _TEXT}, {"type": "null"}], "default": None},
            order={"enum": ["newest", "oldest"], "default": "newest"},
        ),
        {"query": "dead link", "limit": 20, "since": None, "labels": ["bug", "site"], "order": "oldest"},
        {"query": "", "limit": 200, "since": 3, "labels": [1, 2], "order": "best"},
    ),
    Case(  # nested, with references and patterns
        {
            **_object(
                ["customer", "lines"],
                customer=_object(["id"], id=_TEXT, mail={"type": "string", "pattern": "^[^@]+@[^@]+$"}),
                lines={"type": "array", "minItems": 1, "items": {"$ref": "#/$defs/line"}},
            ),
            "$defs": {"line": _LINE, "n": {"type": "integer", "exclusiveMinimum": 0}},
        },
        {
            "customer": {"id": "c1", "mail": "a@example.org"},
            "lines": [{"sku": f"ABC-{number}", "count": number} for number in range(1, 11)],
        },
        {"customer": {"mail": "nobody"}, "lines": [{"sku": f"abc-{number}", "count": 0} for number in range(3)]},
    ),
    Case(  # one of several forms
        _object(
            ["shape"],
            shape={
                "oneOf": [
                    _object(["kind", "radius"], kind={"const": "circle"}, radius={"type": "number"}),
                    _object(["kind", "sides"], kind={"const": "box"}, sides={"type": "array", "items": {"minimum": 0}}),
                ]
            },
        ),
        {"shape": {"kind": "box", "sides": [1, 2.5, 3]}},
        {"shape": {"kind": "box", "radius": 2}},
    ),
)


def _chain(links: int) -> dict[str, Any]:
    """Each link asks the next one twice, so the last one is asked 2**links times."""
    linked = {f"l{each}": {"anyOf": [{"$ref": f"#/$defs/l{each + 1}"}] * 2} for each in range(links)}
    return {**_object([], a={"$ref": "#/$defs/l0"}), "$defs": {**linked, f"l{links}": {"type": "integer"}}}


HOSTILE = {
    "pattern ^(a+)+$": Case(_object([], a={"pattern": "^(a+)+$"}), {"a": "a"}, {"a": "a" * 26 + "!"}),
    "24 doubling references": Case(_chain(24), {"a": 1}, {"a": "x"}),
}


# -- the command


def install(folder: Path = ROOT / "bench" / "out" / ".venv-validators") -> Path | None:
    """The Python of the peers' environment, made when it is not there yet; None when it cannot be."""
    python = folder / "bin" / "python"
    done = folder / f".{'-'.join(REQUIREMENTS)}"
    if not done.exists():
        print(f"Installing {', '.join(REQUIREMENTS)} into {folder} ...", file=sys.stderr)
        try:
            venv.create(folder, with_pip=True, clear=True)
            subprocess.run(
                [python, "-m", "pip", "install", "-qq", "--disable-pip-version-check", *REQUIREMENTS],
                check=True,
                timeout=_INSTALL_BOUND_S,
            )
        except (subprocess.SubprocessError, OSError):
            return None
        done.touch()
    return python


def shown(rows: Sequence[Mapping[str, Any]]) -> str:
    head = ["", "compile µs", "valid µs", "worst", "invalid µs", "worst", "other verdicts"]
    keys = ("compile_us", "valid_us", "valid_us_worst", "invalid_us", "invalid_us_worst")
    return table(
        head,
        [
            [row["engine"], row["failed"], *[NONE] * 5]
            if "failed" in row
            else [row["engine"], *(figure(row[key]) for key in keys), str(row["unlike"])]
            for row in rows
        ],
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tools", type=int, default=TOOLS)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--calls", type=int, default=CALLS)
    parser.add_argument("--bound", type=float, default=BOUND_S, help="seconds for a hostile case")
    parser.add_argument("--no-peers", action="store_true")
    parser.add_argument("--json", type=Path, default=ROOT / "bench" / "out" / "validators.json")
    parser.add_argument("--serve", action="store_true", help="answer requests; what this command starts")
    options = parser.parse_args()
    if options.serve:
        serve()
        return
    pythons: dict[str, Path | str] = dict.fromkeys(OURS, sys.executable)
    theirs = None if options.no_peers else install()
    if theirs is not None:
        pythons |= dict.fromkeys(PEERS, theirs)
    elif not options.no_peers:
        print(f"{', '.join(REQUIREMENTS)} could not be installed: without them")
    groups: dict[str, Sequence[Case]] = {"built in": BUILT_IN}
    if data := routing_data():
        groups = {"real tools": real_cases(data, options.tools), **groups}
    else:
        print(f"without real tools: {MISSING}")
    running = {python: Engines(python) for python in dict.fromkeys(pythons.values())}
    engines = {name: running[python] for name, python in pythons.items()}
    found: dict[str, Any] = {}
    before = machine()
    try:
        for group, cases in groups.items():
            found[group] = measure(engines, cases, options.calls, options.rounds)
            print(f"{len(cases)} schemas, {group}; CPU microseconds, medians\n{shown(found[group])}\n", flush=True)
    finally:
        for process in running.values():
            process.close()
    found["hostile"] = hostile(
        {name: python for name, python in pythons.items() if name not in _NO_OTHER_WHEN_HOSTILE}, HOSTILE, options.bound
    )
    print(
        table(
            ["hostile", "engine", "outcome", "wall ms"],
            [[row["what"], row["engine"], row["outcome"], figure(row["wall_ms"])] for row in found["hostile"]],
        )
    )
    write(options.json, before, found)


if __name__ == "__main__":
    main()
