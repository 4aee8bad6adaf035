"""Small documents for the tests, and what comes of them."""

from typing import Any

import yaml

from wicketgate.upstreams.openapi.document import Document, read_document
from wicketgate.upstreams.openapi.operations import OpenApiOperation, Reading, read_operations
from wicketgate.upstreams.openapi.security import Configured


def document(paths: dict[str, Any], version: str = "3.1.0", **more: Any) -> Document:
    return read_document(yaml.safe_dump({"openapi": version, "paths": paths, **more}, sort_keys=False).encode())


def reading(paths: dict[str, Any], version: str = "3.1.0", **more: Any) -> Reading:
    return read_operations(document(paths, version, **more), Configured())


def operation(raw: dict[str, Any], path: str = "/things", method: str = "post", **more: Any) -> OpenApiOperation:
    """The one operation of a document that has no other."""
    read = reading({path: {method: {"operationId": "it", **raw}}}, **more)
    assert read.skipped == ()
    return read.operations["it"]


def json_body(schema: dict[str, Any], required: bool = True) -> dict[str, Any]:
    return {"required": required, "content": {"application/json": {"schema": schema}}}
