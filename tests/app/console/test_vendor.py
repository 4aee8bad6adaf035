"""Files of other projects that the console, or its tests, bring along."""

import json
from hashlib import sha256
from pathlib import Path

import pytest

from tests.support.requirement import requirement

ROOT = Path(__file__).resolve().parents[3]
SHIPPED = ROOT / "app" / "console" / "static" / "vendor"
OF_TESTS = ROOT / "tests" / "console" / "axe"


@requirement("OPS-260")
@pytest.mark.parametrize("folder", [SHIPPED, OF_TESTS], ids=["shipped", "tests"])
def test_each_file_is_the_one_of_its_package(folder: Path) -> None:
    lock = json.loads((folder / "LOCK.json").read_text("utf-8"))
    found = {path.name: sha256(path.read_bytes()).hexdigest() for path in folder.iterdir()}
    assert {name: row["sha256"] for name, row in lock.items()} == {name: found[name] for name in lock}
    licences = {row["licence_file"] for row in lock.values()}
    assert all((folder / name).stat().st_size > 500 for name in licences)
    others = found.keys() - lock.keys() - licences - {"LOCK.json", "LICENSE-3RD-PARTY.txt"}
    assert others == set()


@requirement("OPS-260")
def test_the_notice_names_each_package_that_is_shipped() -> None:
    notice = (ROOT / "NOTICE").read_text("utf-8").lower()
    lock = json.loads((SHIPPED / "LOCK.json").read_text("utf-8"))
    names = {row["package"].rpartition("/")[2].replace("-", " ") for row in lock.values()}
    assert {name for name in names if name.partition(" ")[0] not in notice} == set()
