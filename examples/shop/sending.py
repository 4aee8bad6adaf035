"""The tools about what travels: shipments to customers, and returns from them."""

from dataclasses import dataclass, replace

from mcp.server.mcpserver.tools import Tool

from examples.shop.records import (
    Carrier,
    Return,
    ReturnReason,
    ReturnStatus,
    Shipment,
    ShipmentStatus,
)
from examples.shop.stock import CARRIERS, TODAY, Shop
from examples.shop.tooling import (
    Limit,
    OrderId,
    ProductId,
    Quantity,
    ReturnId,
    ShipmentId,
    found,
    next_id,
    page,
    require,
    tools,
)


@dataclass(frozen=True)
class ShipmentPage:
    total: int
    shipments: tuple[Shipment, ...]


@dataclass(frozen=True)
class CarrierList:
    carriers: tuple[Carrier, ...]


@dataclass(frozen=True)
class ReturnPage:
    total: int
    returns: tuple[Return, ...]


class ShipmentTools:
    def __init__(self, shop: Shop) -> None:
        self._shop = shop

    def tools(self) -> list[Tool]:
        return [
            *tools("reads", self.list_shipments, self.get_shipment, self.find_shipment, self.list_shipment_carriers),
            *tools("changes", self.create_shipment, self.update_shipment_status),
            *tools("destroys", self.cancel_shipment),
        ]

    def list_shipments(
        self, status: ShipmentStatus | None = None, carrier: Carrier | None = None, limit: Limit = 20
    ) -> ShipmentPage:
        """List shipments, newest first, by status or carrier."""
        rows = [
            one
            for one in reversed(self._shop.shipments.values())
            if status in (None, one.status) and carrier in (None, one.carrier)
        ]
        return ShipmentPage(len(rows), page(rows, limit, 0))

    def get_shipment(self, shipment_id: ShipmentId) -> Shipment:
        """Get one shipment: carrier, tracking code, status and history."""
        return found(self._shop.shipments, shipment_id, "shipment")

    def find_shipment(self, order_id: OrderId) -> ShipmentPage:
        """Find the shipments of an order: where the parcel is."""
        found(self._shop.orders, order_id, "order")
        rows = tuple(one for one in self._shop.shipments.values() if one.order_id == order_id)
        return ShipmentPage(len(rows), rows)

    def list_shipment_carriers(self) -> CarrierList:
        """List the carriers that take our shipments."""
        return CarrierList(CARRIERS)

    def create_shipment(self, order_id: OrderId, carrier: Carrier) -> Shipment:
        """Send a paid or packed order with a carrier."""
        order = found(self._shop.orders, order_id, "order")
        require(
            order.status in ("paid", "packed"), f"{order_id} is {order.status}; only paid or packed orders are sent."
        )
        shipment_id = next_id(self._shop.shipments, "ship")
        code = f"{carrier[:2].upper()}{int(shipment_id.partition('_')[2]) * 7919:08}"
        self._shop.orders[order_id] = replace(order, status="shipped")
        history = (f"{TODAY}: handed to the carrier",)
        return self._put(Shipment(shipment_id, order_id, carrier, code, "in_transit", history))

    def update_shipment_status(self, shipment_id: ShipmentId, status: ShipmentStatus) -> Shipment:
        """Set what has become of a shipment; the order follows when it is delivered."""
        shipment = found(self._shop.shipments, shipment_id, "shipment")
        require(shipment.status != "cancelled", f"{shipment_id} is cancelled.")
        require(status != "cancelled", "Use cancel_shipment to cancel a shipment.")
        if status == "delivered":
            order = self._shop.orders[shipment.order_id]
            self._shop.orders[order.id] = replace(order, status="delivered")
        return self._put(replace(shipment, status=status, history=(*shipment.history, f"{TODAY}: {status}")))

    def cancel_shipment(self, shipment_id: ShipmentId) -> Shipment:
        """Call a shipment back that has not arrived; its order waits again, packed."""
        shipment = found(self._shop.shipments, shipment_id, "shipment")
        require(shipment.status in ("prepared", "in_transit"), f"{shipment_id} is {shipment.status}.")
        order = self._shop.orders[shipment.order_id]
        self._shop.orders[order.id] = replace(order, status="packed")
        return self._put(replace(shipment, status="cancelled", history=(*shipment.history, f"{TODAY}: cancelled")))

    def _put(self, shipment: Shipment) -> Shipment:
        self._shop.shipments[shipment.id] = shipment
        return shipment


class ReturnTools:
    def __init__(self, shop: Shop) -> None:
        self._shop = shop

    def tools(self) -> list[Tool]:
        return [
            *tools("reads", self.list_returns, self.get_return),
            *tools("changes", self.create_return, self.approve_return, self.close_return),
        ]

    def list_returns(
        self, status: ReturnStatus | None = None, reason: ReturnReason | None = None, limit: Limit = 20
    ) -> ReturnPage:
        """List returned goods, newest first, by status or reason."""
        rows = [
            one
            for one in reversed(self._shop.returns.values())
            if status in (None, one.status) and reason in (None, one.reason)
        ]
        return ReturnPage(len(rows), page(rows, limit, 0))

    def get_return(self, return_id: ReturnId) -> Return:
        """Get one return: what came back from which order, and why."""
        return found(self._shop.returns, return_id, "return")

    def create_return(
        self, order_id: OrderId, product_id: ProductId, reason: ReturnReason, quantity: Quantity = 1
    ) -> Return:
        """Open a return of pieces from a delivered order."""
        order = found(self._shop.orders, order_id, "order")
        require(order.status == "delivered", f"{order_id} is {order.status}; only delivered goods come back.")
        bought = sum(item.quantity for item in order.items if item.product_id == product_id)
        returned = sum(
            one.quantity
            for one in self._shop.returns.values()
            if (one.order_id, one.product_id) == (order_id, product_id)
        )
        left = bought - returned
        require(quantity <= left, f"{order_id} has {left} pieces of {product_id} that can come back.")
        return_id = next_id(self._shop.returns, "ret")
        return self._put(Return(return_id, order_id, product_id, quantity, reason, "requested", TODAY.isoformat()))

    def approve_return(self, return_id: ReturnId) -> Return:
        """Approve a requested return."""
        return self._advance(return_id, "requested", "approved")

    def close_return(self, return_id: ReturnId) -> Return:
        """Close an approved return after the goods arrived."""
        return self._advance(return_id, "approved", "closed")

    def _advance(self, return_id: str, before: ReturnStatus, after: ReturnStatus) -> Return:
        one = found(self._shop.returns, return_id, "return")
        require(one.status == before, f"{return_id} is {one.status}, not {before}.")
        return self._put(replace(one, status=after))

    def _put(self, one: Return) -> Return:
        self._shop.returns[one.id] = one
        return one
