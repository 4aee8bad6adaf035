"""The picture of the README: the demo's gate with the numbers that it has, drawn as docs/gate.svg (OPS-131)."""

import argparse
import asyncio
import os
import sys
from collections import Counter
from dataclasses import dataclass
from html import escape
from pathlib import Path

from examples.demo import CONFIG, QUESTIONS, ROOT, shop, tool_tokens
from wicketgate.config.settings_file import load_settings
from wicketgate.gate import Gate
from wicketgate.ports import LOCAL_CALL

PICTURE = ROOT / "docs" / "gate.svg"

_WIDTH, _HEIGHT = 800, 380
_BAR_LEFT, _BAR_LONGEST = 40, 720


@dataclass(frozen=True)
class Numbers:
    servers: tuple[tuple[str, int], ...]
    """Each server with its number of tools."""
    all_tokens: int
    """Of the definitions of all tools: what a prompt holds without the gate."""
    shown_tokens: int
    """Of the three definitions that the model is shown."""
    browse_tokens: int
    """Of the answer to one browse."""

    @property
    def tools(self) -> int:
        return sum(number for _, number in self.servers)


async def measure(question: str) -> Numbers:
    """Starts the gate of the demo and counts. SHOP_URL names a running shop."""
    async with Gate(load_settings(CONFIG)) as gate:
        tools = Counter(item.server for item in gate.runtime.catalog().tools.values())
        missing = [name for name in gate.fleet.members if not tools[name]]
        if missing:
            sys.exit(f"picture: not connected: {', '.join(missing)}")
        shown, all_tools = tool_tokens(gate)
        browsed = await gate.surface.call("tool_browse", {"query": question}, LOCAL_CALL)
        servers = tuple((name, tools[name]) for name in gate.fleet.members)
        return Numbers(servers, all_tools, shown, gate.runtime.tokens.count(browsed.shown))


def draw(numbers: Numbers, question: str) -> str:
    """Returns the SVG: no script, no font of its own, and colours for light and dark pages."""
    told = (
        f"A model is shown three tools of the gate, {numbers.shown_tokens:,} tokens, and one browse adds "
        f"{numbers.browse_tokens:,}. Behind the gate are {numbers.tools} tools of {len(numbers.servers)} servers. "
        f"Their definitions in the prompt would take {numbers.all_tokens:,} tokens."
    )
    size = f'viewBox="0 0 {_WIDTH} {_HEIGHT}" width="{_WIDTH}" height="{_HEIGHT}"'
    shapes = [
        *_box(40, 28, 220, "model or MCP client"),
        *_lines(56, 84, ("tool_browse", "tool_execute", "tool_view"), "code"),
        _text(56, 164, f"3 tools, {numbers.shown_tokens:,} tokens", "strong"),
        _arrow(260, 310),
        *_box(310, 28, 180, "Wicketgate"),
        *_lines(326, 84, ("finds tools by words", "checks every call", "keeps large results"), "plain"),
        _text(326, 164, "one policy, one log", "plain"),
        _arrow(490, 540),
        *_box(540, 28, 220, "tool servers"),
        *_servers(numbers.servers),
        _text(556, 164, f"{numbers.tools} tools", "strong"),
        *_bar(236, "without", numbers.all_tokens, numbers, f"{numbers.tools} definitions in the prompt"),
        *_bar(300, "with", numbers.shown_tokens, numbers, "3 definitions"),
        *_browse_bar(numbers, question),
    ]
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-labelledby="title desc">',
            '<title id="title">Three tools in the prompt, all others behind the gate</title>',
            f'<desc id="desc">{escape(told)}</desc>',
            f"<style>{_STYLE}</style>",
            f'<rect class="page" x="1" y="1" width="{_WIDTH - 2}" height="{_HEIGHT - 2}" rx="10"/>',
            *shapes,
            "</svg>",
            "",
        ]
    )


_STYLE = (
    "text{font-family:system-ui,-apple-system,'Segoe UI',Roboto,'Helvetica Neue',Arial,sans-serif;font-size:15px;"
    "fill:#1f2937}"
    ".code{font-family:ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace;font-size:14px}"
    ".strong,.head{font-weight:600}.plain,.note{fill:#4b5563}.note{font-size:13px}"
    ".page{fill:#f8fafc;stroke:#cbd5e1}.box{fill:#ffffff;stroke:#94a3b8}.line{stroke:#64748b;stroke-width:2;fill:none}"
    ".tip{fill:#64748b}.without{fill:#b45309}.with{fill:#0f766e}.browse{fill:#2dd4bf}"
    "@media(prefers-color-scheme:dark){text{fill:#e5e7eb}.plain,.note{fill:#a3b0c2}.page{fill:#0f172a;stroke:#334155}"
    ".box{fill:#1e293b;stroke:#475569}.line{stroke:#94a3b8}.tip{fill:#94a3b8}.without{fill:#f59e0b}.with{fill:#14b8a6}"
    ".browse{fill:#99f6e4}}"
)


def _text(x: float, y: float, text: str, kind: str, anchor: str = "start") -> str:
    return f'<text class="{kind}" x="{x:g}" y="{y:g}" text-anchor="{anchor}">{escape(text)}</text>'


def _lines(x: float, y: float, texts: tuple[str, ...], kind: str) -> list[str]:
    return [_text(x, y + 24 * number, text, kind) for number, text in enumerate(texts)]


def _box(x: int, y: int, width: int, head: str) -> list[str]:
    return [
        f'<rect class="box" x="{x}" y="{y}" width="{width}" height="156" rx="8"/>',
        _text(x + 16, y + 28, head, "head"),
    ]


def _arrow(start: int, end: int) -> str:
    """Both ways: requests go right, results come back."""
    return (
        f'<path class="line" d="M{start + 12} 108H{end - 12}"/>'
        f'<path class="tip" d="M{end - 4} 108l-11 -6v12z"/><path class="tip" d="M{start + 4} 108l11 -6v12z"/>'
    )


def _servers(servers: tuple[tuple[str, int], ...]) -> list[str]:
    shapes = []
    for number, (name, tools) in enumerate(servers):
        y = 84 + 24 * number
        shapes += [_text(556, y, name, "code"), _text(744, y, f"{tools} tools", "plain", "end")]
    return shapes


def _bar(y: int, kind: str, tokens: int, numbers: Numbers, what: str) -> list[str]:
    return [
        _text(_BAR_LEFT, y - 8, f"{kind.capitalize()} the gate: {tokens:,} tokens, {what}", "strong"),
        f'<rect class="{kind}" x="{_BAR_LEFT}" y="{y}" width="{_long(tokens, numbers):g}" height="16" rx="2"/>',
    ]


def _browse_bar(numbers: Numbers, question: str) -> list[str]:
    left = _BAR_LEFT + _long(numbers.shown_tokens, numbers) + 2
    width = _long(numbers.browse_tokens, numbers)
    return [
        f'<rect class="browse" x="{left:g}" y="300" width="{width:g}" height="16" rx="2"/>',
        _text(left + width + 10, 313, f"and {numbers.browse_tokens:,} for one browse: “{question}”", "plain"),
        _text(_BAR_LEFT, 354, "Tokens of cl100k_base, counted at the demo that make run starts.", "note"),
    ]


def _long(tokens: int, numbers: Numbers) -> float:
    return round(_BAR_LONGEST * tokens / numbers.all_tokens, 1)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m examples.picture", description=__doc__)
    parser.add_argument("--print", dest="shown", action="store_true", help="print the picture instead of writing it")
    shown = parser.parse_args().shown
    os.chdir(ROOT)  # the server of the history reads the repository here
    os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    with shop() as url:
        os.environ["SHOP_URL"] = url
        picture = draw(asyncio.run(measure(QUESTIONS[0])), QUESTIONS[0])
    if shown:
        sys.stdout.write(picture)
    else:
        PICTURE.write_text(picture, encoding="utf-8")


if __name__ == "__main__":
    main()
