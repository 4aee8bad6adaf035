"""The life of a key in the settings (ACCESS-43)."""

from pathlib import Path
from typing import Any

import pytest

from tests.support.requirement import requirement
from wicketgate.config.settings_file import load_settings
from wicketgate.errors import ConfigError


def key_of(folder: Path, **times: str) -> Any:
    lines = "".join(f"\n      {name}: {at}" for name, at in times.items())
    config = folder / "wicketgate.yaml"
    config.write_text(f"auth:\n  keys:\n    - id: k\n      sha256: '{'0' * 64}'\n      actor: ada{lines}\n")
    (key,) = load_settings(config).auth.keys
    return key.hashed()


@pytest.mark.parametrize("text", ["1970-01-02T00:00:00Z", "'1970-01-02T00:00:00Z'", "1970-01-02T01:00:00+01:00"])
@requirement("ACCESS-43")
def test_a_time_is_read_with_its_zone_plain_and_quoted(tmp_path: Path, text: str) -> None:
    assert key_of(tmp_path, expires_at=text).expires_at == 86_400.0
    assert key_of(tmp_path, not_before=text).not_before == 86_400.0
    assert key_of(tmp_path).expires_at is None


@pytest.mark.parametrize(
    ("times", "said"),
    [
        ({"expires_at": "2027-01-31T00:00:00"}, "expires_at: has no zone: write 2027-01-31T00:00:00Z"),
        ({"expires_at": "'2027-01-31T00:00:00'"}, "expires_at: has no zone"),
        ({"not_before": "2027-01-31"}, "not_before: has no zone"),
        ({"not_before": "'2027-01-31'"}, "not_before: has no zone"),
        ({"expires_at": "soon"}, "expires_at: must be a time as in ISO 8601, with its zone"),
        ({"expires_at": "1800000000"}, "expires_at: must be a time"),
        ({"expires_at": "true"}, "expires_at: must be a time"),
        (
            {"not_before": "2027-01-31T01:00:00+01:00", "expires_at": "2027-01-31T00:00:00Z"},
            "expires_at must be after not_before",
        ),
    ],
)
@requirement("ACCESS-43")
def test_a_time_without_a_zone_or_an_end_before_the_beginning_is_refused(
    tmp_path: Path, times: dict[str, str], said: str
) -> None:
    with pytest.raises(ConfigError, match=r"auth\.keys") as refused:
        key_of(tmp_path, **times)
    assert said in str(refused.value)
