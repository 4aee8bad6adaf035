"""``release.sh`` refuses what would be a bad release, and changes nothing then."""

import subprocess
from pathlib import Path

import pytest

from tests.support.process import ROOT
from tests.support.requirement import requirement

GOOD = "# Changelog\n\n## Unreleased\n\n- A new thing.\n\n## 0.1.0 (2026-01-01)\n\n- An old thing.\n"


def git(folder: Path, *words: str) -> str:
    name = ["-c", "user.name=Ada", "-c", "user.email=ada@wicketgate.example"]
    return subprocess.run(["git", *name, *words], cwd=folder, check=True, capture_output=True, text=True).stdout


@requirement("OPS-530")
@pytest.mark.parametrize(
    ("version", "changelog", "tag", "dirty", "reason"),
    [
        ("", GOOD, "", False, "say which version"),
        ("v0.2", GOOD, "", False, "say which version"),
        ("0.2.0", GOOD, "", True, "commit or remove your changes"),
        ("0.2.0", GOOD, "v0.2.0", False, "the tag v0.2.0 exists"),
        ("0.2.0", GOOD.replace("- A new thing.\n\n", ""), "", False, "has nothing under"),
        ("0.2.0", GOOD.replace("- A new", "- A new\n" * 80), "", False, "has 82 lines"),
        ("0.2.0", GOOD, "", False, "name both base images by digest"),
    ],
)
def test_a_bad_release_is_refused(
    version: str, changelog: str, tag: str, dirty: bool, reason: str, tmp_path: Path
) -> None:
    git(tmp_path, "init", "--quiet")
    (tmp_path / "CHANGELOG.md").write_text(changelog)
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "--quiet", "-m", "Begin")
    if tag:
        git(tmp_path, "tag", tag)
    if dirty:
        (tmp_path / "notes").touch()
    before = git(tmp_path, "log", "--format=%H"), git(tmp_path, "tag"), git(tmp_path, "status", "--porcelain")
    done = subprocess.run(["sh", ROOT / "release.sh", version], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 1
    assert reason in done.stderr
    assert (git(tmp_path, "log", "--format=%H"), git(tmp_path, "tag"), git(tmp_path, "status", "--porcelain")) == before
