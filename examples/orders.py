"""A small service with an OpenAPI document, to try behind the gate: ``python -m examples.orders``."""

import argparse
from typing import Annotated

import uvicorn
from fastapi import FastAPI, HTTPException, Path
from pydantic import BaseModel

app = FastAPI(title="Orders", version="1")


class Order(BaseModel):
    order_id: str
    customer: str
    total: float
    state: str


_ORDERS = {
    order.order_id: order
    for order in (
        Order(order_id="o-1", customer="Ada", total=129.0, state="sent"),
        Order(order_id="o-2", customer="Grace", total=18.5, state="open"),
    )
}


@app.get("/orders", operation_id="listOrders", summary="List all orders")
def list_orders() -> list[Order]:
    return list(_ORDERS.values())


@app.get("/orders/{order_id}", operation_id="getOrder", summary="Look at one order")
def get_order(order_id: Annotated[str, Path(description="Such as o-1.")]) -> Order:
    if order_id not in _ORDERS:
        raise HTTPException(404, f"There is no order {order_id}.")
    return _ORDERS[order_id]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m examples.orders", description="A small service of orders.")
    parser.add_argument("--port", type=int, default=9000, help="port on 127.0.0.1")
    port = parser.parse_args().port
    print(f"Orders will be ready on http://127.0.0.1:{port}", flush=True)
    uvicorn.run(app, host="127.0.0.1", port=port, log_level="warning")


if __name__ == "__main__":
    main()
