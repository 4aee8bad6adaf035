"""Which tools a set of permissions covers, ready for asking it of ten thousand (DESIGN §3 "Auth")."""

from dataclasses import dataclass
from functools import lru_cache


@dataclass(frozen=True, slots=True)
class Reach:
    """What permissions cover of the tools: the rule of ``Identity.allows`` for ``tools:<namespace>:<name>``."""

    everything: bool
    namespaces: frozenset[str]
    names: frozenset[str]
    tools: frozenset[tuple[str, str]]

    def covers(self, namespace: str, name: str) -> bool:
        return self.everything or namespace in self.namespaces or name in self.names or (namespace, name) in self.tools


@lru_cache(maxsize=1_024)
def reach_of(permissions: tuple[str, ...]) -> Reach:
    everything = False
    namespaces, names, tools = set[str](), set[str](), set[tuple[str, str]]()
    for permission in permissions:
        match permission.split(":"):
            case ["*"] | ["tools" | "*", "*"] | ["tools" | "*", "*", "*"]:
                everything = True
            case ["tools" | "*", namespace, "*"]:
                namespaces.add(namespace)
            case ["tools" | "*", "*", name]:
                names.add(name)
            case ["tools" | "*", namespace, name]:
                tools.add((namespace, name))
    return Reach(everything, frozenset(namespaces), frozenset(names), frozenset(tools))
