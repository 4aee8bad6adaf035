"""What ``make sdk`` installs and runs is pinned, and the document suits the generators."""

import json
import re

from tests.support.process import ROOT
from tests.support.requirement import requirement

CONFORMANCE = ROOT / "conformance"


@requirement("LIB-42")
def test_each_generator_is_pinned_and_no_file_names_a_registry() -> None:
    python = (CONFORMANCE / "requirements" / "sdk.lock").read_text("utf-8")
    locked = (CONFORMANCE / "npm" / "sdk-js" / "package-lock.json").read_text("utf-8")
    wanted = json.loads((CONFORMANCE / "npm" / "sdk-js" / "package.json").read_text("utf-8"))["dependencies"]
    assert "\nopenapi-python-client==" in python
    assert {"@hey-api/openapi-ts", "openapi-typescript", "openapi-fetch", "typescript"} <= wanted.keys()
    assert all(re.fullmatch(r"\d+\.\d+\.\d+", version) for version in wanted.values())
    assert "resolved" not in locked and "://" not in python
    assert "make sdk" in (ROOT / ".ci" / "run").read_text("utf-8").splitlines()


@requirement("LIB-42")
def test_no_object_has_a_property_of_its_own_name_which_openapi_python_client_confuses() -> None:
    schemas = json.loads((ROOT / "openapi" / "openapi-no-stream.json").read_text("utf-8"))["components"]["schemas"]
    snake = {name: re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower() for name in schemas}
    assert [name for name, schema in schemas.items() if snake[name] in schema.get("properties", {})] == []
