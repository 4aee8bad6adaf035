"""Files of ``deploy/`` as the tests read them."""

import re
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from tests.support.process import ROOT

DEPLOY = ROOT / "deploy"

_VARIABLE = re.compile(r"\$\$|\$\{(\w+)(?:(:[-?])([^}]*))?\}")


def read_yaml(path: Path) -> Any:
    return yaml.safe_load(path.read_text("utf-8"))


def manifests(path: Path) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(path.read_text("utf-8")))


def secrets_in(folder: Path) -> tuple[dict[str, str], str]:
    """The variables that ``secrets.sh`` makes, and what it printed."""
    done = subprocess.run(["sh", DEPLOY / "secrets.sh", folder], capture_output=True, text=True, check=True)
    lines = (folder / ".env").read_text().splitlines()
    return dict(line.split("=", 1) for line in lines), done.stdout


def compose(variables: Mapping[str, str]) -> dict[str, Any]:
    """The compose file with its variables in place, as compose puts them. Raises KeyError for one that is required."""

    def value(match: re.Match[str]) -> str:
        name, how, other = match.groups()
        if name is None:
            return "$"
        if how == ":-":
            return variables.get(name) or other
        return variables[name]

    def filled(node: Any) -> Any:
        # As compose does it: after the YAML was read, so that an empty variable is an empty text.
        if isinstance(node, dict):
            return {key: filled(each) for key, each in node.items()}
        if isinstance(node, list):
            return [filled(each) for each in node]
        return _VARIABLE.sub(value, node) if isinstance(node, str) else node

    whole: dict[str, Any] = filled(read_yaml(DEPLOY / "compose.yml"))
    return whole
