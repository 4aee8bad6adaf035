"""What a refusal before the stream must look like (S3 "Pre-Stream Errors"; E29)."""

import json
from collections.abc import Collection

from app.conform.leaks import leaks
from app.conform.transcript import Exchange, read_json, shown


def not_refused(exchange: Exchange, statuses: Collection[int]) -> list[str]:
    """A fault unless the answer has one of *statuses*."""
    if exchange.status in statuses:
        return []
    wanted = " or ".join(str(status) for status in sorted(statuses))
    return [f"{exchange.label}: {exchange.status or exchange.broken} instead of {wanted}"]


def shape_faults(exchange: Exchange) -> list[str]:
    """Of the body of any refusal: it must be ``{code, message}`` as JSON, and say nothing of our insides."""
    asked = f"{exchange.label}: {exchange.status}"
    if exchange.media_type != "application/json":
        return [f"{asked} with content type {shown(exchange.media_type)}"]
    try:
        body = read_json(exchange.body)
    except ValueError:
        return [f"{asked} with a body that is not JSON: {shown(exchange.body.decode(errors='replace'))}"]
    if not isinstance(body, dict) or body.keys() != {"code", "message"}:
        return [f"{asked} with a body that is not {{code, message}}: {shown(json.dumps(body))}"]
    if not all(isinstance(value, str) and value for value in body.values()):
        return [f"{asked}: code and message must be texts: {shown(json.dumps(body))}"]
    return [f"{asked}: {what} in {shown(body['message'])}" for what in leaks(body["message"])]
