"""``/console/api/spending``: what was used and what it cost (OPS-555)."""

from typing import Any, get_args

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel

from routers.console import data_router
from routers.json_bodies import REFUSAL, SurrogateJson, parameters, query
from routers.refusals import need, refuse
from wicketgate.errors import StoreUnavailable
from wicketgate.gate import Gate
from wicketgate.gateway.spending import DAYS_KEPT, UNIT, By

_DAYS_SHOWN = 30
_BY: list[str] = list(get_args(By))
_QUERY = parameters(
    query("by", {"type": "string", "enum": _BY, "default": "actor"}),
    query("since", {"type": "string", "format": "date"}),
    query("actor"),
)


_FAILURES: dict[int | str, dict[str, Any]] = {
    400: {"description": "The query is not valid", "content": REFUSAL},
    401: {"description": "No valid credential", "content": REFUSAL},
    403: {"description": "The caller has no ops:read", "content": REFUSAL},
    503: {"description": "The store cannot be read", "content": REFUSAL},
}


class Spent(BaseModel):
    """*turns* of models and their tokens as the providers report them; *cached_tokens* are part of *prompt_tokens*.
    *calls* of tools. *cost* is in the currency of the prices."""

    name: str
    turns: int
    calls: int
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    cost: float


class SpentDay(BaseModel):
    day: str
    cost: float


class SpendingReport(BaseModel):
    """*rows*: the largest cost first, of days the newest. *days*: the cost of all on each day since *since*. *priced*:
    the configuration has prices now."""

    by: str
    since: str
    priced: bool
    rows: list[Spent]
    days: list[SpentDay]


_REPORT = f"""Sums of turns, calls, tokens and cost since the day `since` (UTC; 30 days without it), of one `actor` or
all, at all workers and replicas; kept for {DAYS_KEPT} days. Needs `ops:read`."""


def spending_router(gate: Gate) -> APIRouter:
    router = data_router("spending", _FAILURES)

    @router.get(
        "/spending",
        operation_id="spendingReport",
        response_model=SpendingReport,
        openapi_extra=_QUERY,
        description=_REPORT,
    )
    async def spending(request: Request) -> Response:
        need(request, "ops:read")
        by: Any = request.query_params.get("by", "actor")
        since = request.query_params.get("since") or gate.spending.days_ago(_DAYS_SHOWN - 1)
        if by not in _BY:
            return refuse(400, "invalid_request", f"by is one of {', '.join(_BY)}")
        try:
            sums, costs = await gate.spending.report(by, since, request.query_params.get("actor", ""))
        except ValueError:
            return refuse(400, "invalid_request", "since is a day, as in 2027-01-31")
        except StoreUnavailable:
            return refuse(503, "store_unavailable", "The store cannot be read at the moment")
        ordered = sorted(sums.items(), key=lambda each: (-each[1][-1], each[0]))
        if by == "day":
            ordered = sorted(sums.items(), reverse=True)
        rows = [dict(zip(Spent.model_fields, (name, *sum[:-1], sum[-1] / UNIT), strict=True)) for name, sum in ordered]
        days = [{"day": day, "cost": cost / UNIT} for day, cost in costs.items()]
        return SurrogateJson(
            {
                "by": by,
                "since": min(costs, default=since),
                "priced": gate.spending.rules.priced,
                "rows": rows,
                "days": days,
            }
        )

    return router
