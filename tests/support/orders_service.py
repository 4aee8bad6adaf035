"""A real HTTP service made with FastAPI, whose generated document describes it: what it gives back is what it got.

``python -m tests.support.orders_service PORT`` serves it.
"""

import sys
from enum import StrEnum
from typing import Annotated, Any

import uvicorn
from fastapi import Body, Cookie, FastAPI, File, Form, Header, HTTPException, Path, Query, Response, UploadFile
from fastapi.responses import PlainTextResponse, StreamingResponse
from pydantic import BaseModel


class Size(StrEnum):
    SMALL = "small"
    LARGE = "large"


class Line(BaseModel):
    sku: str
    quantity: int = 1
    notes: "list[Line]" = []


class Order(BaseModel):
    customer: str
    lines: list[Line]
    size: Size | None = None


app = FastAPI(title="Orders")


@app.get("/orders/{order_id}", operation_id="getOrder", summary="Look at an order")
def get_order(
    order_id: str,
    tags: Annotated[list[str], Query()] = [],  # noqa: B006
    ratio: float | None = None,
    urgent: bool = False,
    x_note: Annotated[str | None, Header()] = None,
    session: Annotated[str | None, Cookie()] = None,
) -> dict[str, Any]:
    found = {"order_id": order_id, "tags": tags, "ratio": ratio, "urgent": urgent, "note": x_note, "session": session}
    if order_id == "missing":
        raise HTTPException(404, "no such order")
    return found


@app.post("/orders", operation_id="createOrder", status_code=201)
def create_order(order: Order, dry: bool = False) -> dict[str, Any]:
    return {"order": order.model_dump(mode="json"), "dry": dry}


@app.delete("/orders/{order_id}", operation_id="deleteOrder", status_code=204)
def delete_order(order_id: Annotated[int, Path(ge=1)]) -> Response:
    return Response(status_code=204)


@app.post("/files", operation_id="upload")
async def upload(
    file: Annotated[UploadFile, File()], more: Annotated[list[UploadFile], File()], title: Annotated[str, Form()]
) -> dict[str, Any]:
    return {
        "title": title,
        "file": list(await file.read()),
        "more": [list(await each.read()) for each in more],
    }


@app.post("/login", operation_id="login")
def login(user: Annotated[str, Form()], codes: Annotated[list[int], Form()]) -> dict[str, Any]:
    return {"user": user, "codes": codes}


@app.post("/numbers", operation_id="sum")
def add(numbers: Annotated[list[int], Body()]) -> int:
    return sum(numbers)


@app.get("/hello", operation_id="hello", response_class=PlainTextResponse)
def hello() -> str:
    return "hello"


@app.get("/picture", operation_id="picture", responses={200: {"content": {"image/png": {}}}}, response_class=Response)
def picture() -> Response:
    return Response(b"\x89PNG\r\n\x1a\n", media_type="image/png")


class EventStream(StreamingResponse):
    media_type = "text/event-stream"


@app.get("/events", operation_id="events", response_class=EventStream)
def events() -> EventStream:
    return EventStream(iter([b"data: 1\n\n"]))


if __name__ == "__main__":
    uvicorn.run(app, port=int(sys.argv[1]), log_level="error")
