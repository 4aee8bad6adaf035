"""``python -m site_tools``: builds the documentation into ``site/`` and exits with 1 if anything is wrong with it."""

import json
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

from site_tools.check import faults
from site_tools.pages import ROOT, copy, navigation_faults
from site_tools.reference import http_page, settings_page

WORK = ROOT / "build" / "site"
SITE = ROOT / "site"
CONFIGURATION = Path(__file__).with_name("zensical.toml")
WORKER = Path(__file__).with_name("iframe_worker.js")

# The theme's script can fetch diagrams, editors and star counts from other hosts. No page uses them.
_OPTIONAL_PARTS = re.compile(r"https://(?:unpkg\.com|cdn\.jsdelivr\.net|api\.github\.com)/[\w@./-]*")
_REMOTE_WORKER = "https://unpkg.com/iframe-worker/shim"


def main() -> int:
    shutil.rmtree(WORK, ignore_errors=True)
    pages = WORK / "pages"
    copy(pages)
    documents = {name: json.loads((ROOT / "openapi" / name).read_text("utf-8")) for name in _GENERATED}
    for name, (place, write) in _GENERATED.items():
        (pages / place).write_text(write(documents[name]), "utf-8")
    shutil.copyfile(CONFIGURATION, WORK / CONFIGURATION.name)
    there = {path.relative_to(pages).as_posix() for path in pages.rglob("*.md")}
    wrong = navigation_faults(tomllib.loads(CONFIGURATION.read_text("utf-8")), there)
    built = subprocess.run(  # noqa: S603 - the program of this environment
        [Path(sys.executable).with_name("zensical"), "build", "--strict", "--clean"], cwd=WORK, check=False
    )
    if built.returncode:
        return 1
    _take_in(WORK / "site")
    wrong += faults(WORK / "site")
    print(*wrong, sep="\n", end="\n" if wrong else "", file=sys.stderr)
    if wrong:
        return 1
    shutil.rmtree(SITE, ignore_errors=True)
    shutil.move(WORK / "site", SITE)
    print(f"{len(list(SITE.rglob('*.html')))} pages in {SITE.name}/: open {SITE / 'index.html'}")
    return 0


_GENERATED = {
    "wicketgate.schema.json": ("reference/settings.md", settings_page),
    "openapi.json": ("reference/http.md", http_page),
}


def _take_in(site: Path) -> None:
    """Replaces what the theme would load from other hosts: the worker of the search by a copy, the rest by nothing."""
    scripts = site / "assets" / "javascripts"
    for script in scripts.rglob("*.js"):
        script.write_text(_OPTIONAL_PARTS.sub("", script.read_text("utf-8")), "utf-8")
    shutil.copyfile(WORKER, scripts / WORKER.name)
    for page in site.rglob("*.html"):
        to_top = "../" * len(page.relative_to(site).parent.parts)
        text = page.read_text("utf-8").replace(_REMOTE_WORKER, f"{to_top}assets/javascripts/{WORKER.name}")
        page.write_text(text, "utf-8")


if __name__ == "__main__":
    sys.exit(main())
