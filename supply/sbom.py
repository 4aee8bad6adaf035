"""``python -m supply.sbom PYTHON FILE``: the packages of an environment as CycloneDX, with the hashes that they were
installed by, and a licence for each that we accept. The same environment gives the same bytes.

It covers the wheel with its extras but ``keyring``, and the Python part of the image. The Debian packages of the image
are those of its base, whose publisher lists them.
"""

import json
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
LOCK = ROOT / "requirements" / "service.lock"

# Those that ask for no more than that their text is kept (NOTICE).
FREE = frozenset(
    {
        *("0BSD", "Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "CNRI-Python", "ISC", "MIT", "MIT-0", "PSF-2.0"),
        *("Python-2.0", "Unlicense", "ZPL-2.1"),
    }
)
EXCEPTIONS: Mapping[str, str] = {
    "certifi": "MPL-2.0: a file of certificates, used unchanged",
    "google-re2": "says only BSD License; its LICENSE is BSD-3-Clause",
    "pathspec": "MPL-2.0: of the build alone, used unchanged",
    "protobuf": "declares none; its LICENSE is BSD-3-Clause; of the extra otel",
    "psycopg": "LGPL-3.0: of the extra postgres, a library that its user can replace",
    "psycopg-binary": "LGPL-3.0: as psycopg",
    "tiktoken": "declares none; its LICENSE is MIT",
    "trove-classifiers": "says only Apache Software License; of the build alone",
}


def main() -> None:
    python, target = sys.argv[1:]
    command = [str(Path(sys.executable).with_name("cyclonedx-py")), "environment", python]
    command += ["--pyproject", str(ROOT / "pyproject.toml"), "--mc-type", "application"]
    command += ["--output-reproducible", "--output-format", "JSON"]
    whole = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    hashes, unused = locked(LOCK.read_text("utf-8")), dict(EXCEPTIONS)
    faults: list[str] = []
    for component in whole["components"]:
        name = component["name"].lower().replace("_", "-")
        if found := hashes.get((name, component["version"])):
            component["hashes"] = [{"alg": "SHA-256", "content": each} for each in found]
        elif name not in ("pip", "setuptools"):
            faults.append(f"{name} {component['version']} is not in {LOCK.name}")
        given = list(licences(component))
        if unused.pop(name, None) is None and not is_free(given):
            faults.append(f"{name}: {', '.join(given) or 'no licence'}")
    faults += [f"{name}: the exception is not needed" for name in unused]
    Path(target).parent.mkdir(parents=True, exist_ok=True)
    Path(target).write_text(json.dumps(whole, indent=1, sort_keys=True) + "\n", "utf-8")
    print(f"{target}: {len(whole['components'])} packages, {len(EXCEPTIONS)} exceptions of licence")
    if faults:
        sys.exit(
            "sbom: look at these licences, and add them to supply/sbom.py if they may be shipped:\n" + "\n".join(faults)
        )


def locked(text: str) -> Mapping[tuple[str, str], Sequence[str]]:
    """The hashes of each package of a lock file, by name and version."""
    parts = re.split(r"^(\S+)==(\S+)", text, flags=re.MULTILINE)[1:]
    triples = zip(parts[::3], parts[1::3], parts[2::3], strict=True)
    return {(name.lower(), version): re.findall(r"sha256:([0-9a-f]{64})", rest) for name, version, rest in triples}


def licences(component: Mapping[str, Any]) -> Iterator[str]:
    for each in component.get("licenses", ()):
        licence = each.get("license", {})
        yield each.get("expression") or licence.get("id") or licence.get("name") or ""


def is_free(given: Sequence[str]) -> bool:
    """True if one of the ways in which a package states its licence is made of free ones alone."""
    names = ({*re.findall(r"[\w.-]+", each)} - {"AND", "OR"} for each in given)
    return any(each and each <= FREE for each in names)


if __name__ == "__main__":
    main()
