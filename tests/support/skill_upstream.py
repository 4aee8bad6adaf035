"""An upstream in this process that has skills (extension io.modelcontextprotocol/skills), and says what was asked."""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from wicketgate.errors import UpstreamRefused
from wicketgate.fleet.features import FeatureChange, FeatureKind, FeatureList, FeatureSupport
from wicketgate.login.user_credentials import GrantName
from wicketgate.ports import CallContext
from wicketgate.upstreams.embedded import StubUpstream

SKILLS = "io.modelcontextprotocol/skills"
MAIN = (
    "---\nname: refunds\ndescription: Process refund requests per company policy\n---\n\n# Refunds\n\nSee forms/A.md.\n"
)
FORM = "Ask for the order number first.\n"


def entry_of(
    root: str, files: Mapping[str, str], description: str = "Process refund requests per company policy"
) -> dict[str, Any]:
    """The entry of a skill in the directory *root*, of its files by path."""
    return {
        "uri": f"{root}/SKILL.md",
        "frontmatter": {"name": root.rpartition("/")[2], "description": description},
        "resources": [
            {
                "uri": f"{root}/{path}",
                "digest": f"sha256:{hashlib.sha256(text.encode()).hexdigest()}",
                "size": len(text.encode()),
            }
            for path, text in files.items()
        ],
    }


REFUNDS = "skill://acme/refunds"
FILES = {"SKILL.md": MAIN, "forms/A.md": FORM}


@dataclass
class SkillFeatures:
    """Implements Features. *files* are by URI; *unlisted* skills are given by ``skills/get`` alone."""

    entries: list[Any]
    files: dict[str, str]
    unlisted: list[Any] = field(default_factory=list)
    settings: Mapping[str, Any] = field(default_factory=dict)
    asked: list[tuple[str, Mapping[str, Any]]] = field(default_factory=list)
    tell: Callable[[FeatureChange], None] = lambda change: None
    listings: int = 0
    resources: list[Any] = field(default_factory=list)

    @property
    def support(self) -> FeatureSupport | None:
        return FeatureSupport(resources=True, extensions={SKILLS: self.settings})

    @property
    def accounts(self) -> None:
        return None

    async def list_all(self, kind: FeatureKind, account: GrantName | None = None) -> FeatureList:
        self.listings += kind == "skills"
        items = {"skills": self.entries, "resources": self.resources}.get(kind, [])
        return FeatureList(list(items), 9_000)

    async def request(
        self, method: str, params: Mapping[str, Any], context: CallContext, timeout_s: float
    ) -> Mapping[str, Any]:
        self.asked.append((method, params))
        uri = params["uri"]
        if method == "skills/get":
            found = next((one for one in [*self.entries, *self.unlisted] if one["uri"] == uri), None)
            if found is not None:
                return {"skill": found, "ttlMs": 5, "cacheScope": "public"}
        elif method == "resources/directory/read":
            below = sorted(one for one in self.files if one.startswith(f"{uri}/"))
            if below:
                return {"resources": [{"uri": one, "name": one.rpartition("/")[2]} for one in below]}
        elif uri in self.files:
            return {"contents": [{"uri": uri, "mimeType": "text/markdown", "text": self.files[uri]}]}
        raise UpstreamRefused("refused", code=-32602, refusal=f"No resource {uri}")

    def follow(self, uris: frozenset[str], actor: str = "") -> None:
        pass

    def watch(self, heard: Callable[[FeatureChange], None]) -> None:
        self.tell = heard


class SkillUpstream(StubUpstream):
    """Implements Upstream and HasFeatures; one skill of two files, unless others are given."""

    def __init__(self, name: str = "shop", tools: Sequence[Mapping[str, Any]] = ()) -> None:
        super().__init__(tools, name=name)
        files = {f"{REFUNDS}/{path}": text for path, text in FILES.items()}
        self.features = SkillFeatures([entry_of(REFUNDS, FILES)], files)
