"""A small service with an OpenAPI document, to try behind the gate: ``python -m examples.orders``."""

import argparse
import errno
import socket
import sys
from contextlib import suppress
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


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m examples.orders", description="A small service of orders.")
    parser.add_argument("--port", type=int, default=9000, help="port on 127.0.0.1")
    port = parser.parse_args().port
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(("127.0.0.1", port))
            listener.listen()  # binding alone does not claim the port
        except OSError as error:
            said = "is taken" if error.errno == errno.EADDRINUSE else f"cannot be used: {error.strerror}"
            hint = "choose another with --port, and write it in the configuration"
            print(f"orders: port {port} {said}; {hint}", file=sys.stderr)
            return 1
        print(f"Orders will be ready on http://127.0.0.1:{listener.getsockname()[1]}", flush=True)
        with suppress(KeyboardInterrupt):
            uvicorn.Server(uvicorn.Config(app, log_level="warning")).run(sockets=[listener])
    return 0


if __name__ == "__main__":
    sys.exit(main())
