"""The bill of materials: what it takes from a lock file, and which licences it accepts."""

import pytest

from supply.sbom import is_free, locked
from tests.support.process import ROOT
from tests.support.requirement import requirement


@requirement("OPS-586")
def test_every_package_of_the_lock_file_has_a_hash() -> None:
    found = locked((ROOT / "requirements" / "service.lock").read_text("utf-8"))
    assert len(found) > 50
    assert all(found.values())
    assert "httpx" in {name for name, _ in found}


@requirement("OPS-586")
@pytest.mark.parametrize(
    ("given", "free"),
    [
        (["MIT"], True),
        (["Apache-2.0 AND CNRI-Python"], True),
        (["BSD-3-Clause", "License :: OSI Approved :: BSD License"], True),
        (["MIT AND GPL-3.0-only"], False),
        (["LGPL-3.0-only"], False),
        (["License :: OSI Approved :: MIT License"], False),
        ([""], False),
        ([], False),
    ],
)
def test_a_licence_is_accepted_only_if_all_of_it_is_free(given: list[str], free: bool) -> None:
    assert is_free(given) is free
