"""Operations of real OpenAPI documents called through the connector, against a mock made from the same document
(OPS-154): which calls does the mock accept?

The mock is Prism, which reads the document by itself and checks each request. Documents come from files, or from public
git repositories (``--git URL:PATH``), and are never kept in this repository.
"""

import argparse
import asyncio
import random
import socket
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio

from bench.sample_arguments import sample_arguments
from bench.table import table
from wicketgate.access.identity import Identity
from wicketgate.errors import GatewayError, UpstreamLost
from wicketgate.net import HttpClient, Outgoing
from wicketgate.ports import CallContext
from wicketgate.upstreams.openapi.document import DocumentRefused, read_document
from wicketgate.upstreams.openapi.operations import SUBSCRIPTION
from wicketgate.upstreams.openapi.upstream import FileSource, OpenApiUpstream, ServiceAccess

OUT = Path(__file__).parent / "out" / "documents"
PRISM = "@stoplight/prism-cli@5.14.2"
SUFFIXES = (".json", ".yaml", ".yml")
_START_S = 120.0
_INSTALL_S = 600
_AT_ONCE = 8
_SHOWN = 5
# The request was right; the document has no answer for it that the mock could give.
_OF_ANSWERS = ("NO_RESPONSE_DEFINED", "NO_COMPLEX_OBJECT_TEXT", "NOT_ACCEPTABLE", "SCHEMA_TOO_COMPLEX")
_CALLER = CallContext(Identity("bench", ("*",)), "bench", "bench")


@dataclass(frozen=True, slots=True)
class Outcome:
    """*refused* has a line for each refused call: ``operation: what the mock said``."""

    operations: int
    left_out: int
    accepted: int
    without_sample: int
    refused: Sequence[str]


async def judge(document: Path, mock_url: str, most: int) -> Outcome:
    """Call up to *most* operations, each with the required arguments and with all that it has."""
    access = ServiceAccess(mock_url, *_credentials(document), query=_query_keys(document))
    upstream = OpenApiUpstream(
        "mocked",
        FileSource(document),
        HttpClient(Outgoing()),
        access,
        connect_timeout_s=_START_S,
        jitter=random.random,
    )
    ready = asyncio.Event()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(upstream.supervise, lambda name: ready.set())
        async with asyncio.timeout(_START_S):
            await ready.wait()
        # A tool call cannot carry a stream.
        tools = [tool for tool in await upstream.list_tools() if tool.get("_meta") != SUBSCRIPTION]
        chosen = random.Random(1).sample(tools, most) if len(tools) > most else tools
        slots = asyncio.Semaphore(_AT_ONCE)
        ended = await asyncio.gather(
            *(_call(upstream, tool, whole, slots) for tool in chosen for whole in (False, True))
        )
        left_out = len(upstream.left_out)
        tasks.cancel_scope.cancel()
    counts = Counter(said is None or said for said in ended if said in (None, ""))
    refused = [said for said in ended if said]
    return Outcome(len(tools), left_out, counts[""], counts[True], refused)


async def _call(
    upstream: OpenApiUpstream, tool: Mapping[str, Any], whole: bool, slots: asyncio.Semaphore
) -> str | None:
    """Returns what the mock objects to, empty if nothing; None where no arguments could be made up."""
    arguments = sample_arguments(tool["inputSchema"], whole=whole)
    if arguments is None:
        return None
    async with slots:
        try:
            try:
                result = await upstream.call_tool(tool["name"], arguments, _CALLER, _START_S)
            except UpstreamLost:  # Prism closes idle connections without a word
                result = await upstream.call_tool(tool["name"], arguments, _CALLER, _START_S)
        except GatewayError as error:
            return f"{tool['name']}: {error}"
    text = "\n".join(str(block.get("text", "")) for block in result["content"])
    # A document may declare the refusal itself; a violation of an answer is that of the document's own examples.
    refused = text.startswith("HTTP 4") or '"location":["request"' in text
    if not result.get("isError") or not refused or any(kind in text for kind in _OF_ANSWERS):
        return ""
    return f"{tool['name']}: {' '.join(text.split())[:600]}"


def _schemes(document: Path) -> list[Mapping[str, Any]]:
    return list(read_document(document.read_bytes()).security_schemes().values())


def _credentials(document: Path) -> tuple[dict[str, str], None, int]:
    schemes = _schemes(document)
    headers = {str(each["name"]): "key" for each in schemes if each.get("in") == "header" and "name" in each}
    kinds = {str(each.get("scheme", "")).lower() for each in schemes if each.get("type") == "http"}
    headers["Authorization"] = "Basic dXNlcjprZXk=" if kinds == {"basic"} else "Bearer key"
    return headers, None, 50_000_000


def _query_keys(document: Path) -> dict[str, str]:
    return {str(each["name"]): "key" for each in _schemes(document) if each.get("in") == "query" and "name" in each}


@asynccontextmanager
async def mock(document: Path, log: Path) -> AsyncIterator[str]:
    """The URL of Prism in front of *document*. Raises TimeoutError if it does not start."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    program = OUT / "prism" / "node_modules" / ".bin" / "prism"
    command = [str(program), "mock", str(document), "-p", str(port), "-h", "127.0.0.1", "--errors"]
    with log.open("wb") as output:
        process = await asyncio.create_subprocess_exec(*command, stdout=output, stderr=output)
        try:
            async with asyncio.timeout(_START_S):
                while process.returncode is None and not await _listens(port):  # noqa: ASYNC110 (another process)
                    await asyncio.sleep(0.2)
            if process.returncode is not None:
                raise TimeoutError
            yield f"http://127.0.0.1:{port}"
        finally:
            if process.returncode is None:
                process.terminate()
            await process.wait()


async def _listens(port: int) -> bool:
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return False
    writer.close()
    return True


def install_prism() -> None:
    folder = OUT / "prism"
    if (folder / "node_modules" / ".bin" / "prism").exists():
        return
    folder.mkdir(parents=True, exist_ok=True)
    print(f"Installing {PRISM} into {folder} ...", file=sys.stderr)
    command = ["npm", "install", "--silent", "--no-audit", "--no-fund", "--prefix", str(folder), PRISM]
    subprocess.run(command, check=True, timeout=_INSTALL_S)


def documents_in(folder: Path) -> list[Path]:
    """The files that are OpenAPI documents themselves; those that they refer to may stand beside or below them."""
    found = [path for path in sorted(folder.iterdir()) if path.suffix in SUFFIXES]
    return [path for path in found if b"openapi" in path.read_bytes()[:100_000]]


def cloned(source: str, into: Path) -> Path | None:
    """The file that *source* (``URL:PATH``) names, or None where its repository cannot be had."""
    url, _, path = source.rpartition(":")
    folder = into / f"{abs(hash(source)):x}"
    command = ["git", "clone", "--quiet", "--depth", "1", url, str(folder)]
    try:
        subprocess.run(command, check=True, timeout=_INSTALL_S)
    except (subprocess.SubprocessError, OSError):
        return None
    return folder / path


async def run(documents: Sequence[Path], most: int) -> bool:
    """Print the table. Returns true if no call was refused."""
    rows: list[Sequence[str]] = []
    refused: list[str] = []
    for document in documents:
        log = OUT / f"{document.stem}.log"
        try:
            async with mock(document, log) as url:
                outcome = await judge(document, url, most)
        except TimeoutError:
            rows.append((document.name, "–", "–", "–", "–", f"the mock did not start: {log}"))
            continue
        except DocumentRefused as why:
            rows.append((document.name, "–", "–", "–", "–", str(why)[:60]))
            continue
        figures = outcome.operations, outcome.left_out, outcome.accepted, len(outcome.refused), outcome.without_sample
        rows.append((document.name, *(f"{figure:,}" for figure in figures)))
        refused += [f"{document.name}: {line}" for line in outcome.refused[:_SHOWN]]
    print(table(("document", "operations", "left out", "accepted", "refused", "no arguments"), rows))
    print("\n".join(["", *refused]) if refused else "")
    return not refused


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", nargs="?", type=Path, help="documents, each a file of its own in this folder")
    parser.add_argument("--git", action="append", default=[], metavar="URL:PATH", help="a document in a repository")
    parser.add_argument("--most", type=int, default=300, help="operations of each document that are called")
    asked = parser.parse_args()
    if asked.folder is None and not asked.git:
        parser.error("name a folder of documents, or repositories with --git")
    install_prism()
    OUT.mkdir(parents=True, exist_ok=True)
    documents = documents_in(asked.folder) if asked.folder is not None else []
    with tempfile.TemporaryDirectory() as folder:
        for source in asked.git:
            if (document := cloned(source, Path(folder))) is None:
                print(f"not reachable: {source}", file=sys.stderr)
            else:
                documents.append(document)
        return 0 if asyncio.run(run(documents, asked.most)) else 1


if __name__ == "__main__":
    sys.exit(main())
