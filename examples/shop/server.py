"""The shop as one MCP server: all tools over one state."""

from typing import Any

from mcp.server import MCPServer
from mcp.server.mcpserver import Context
from mcp.server.mcpserver.exceptions import ToolError
from mcp.server.mcpserver.tools import Tool
from mcp.types import CallToolResult, InputRequiredResult

from examples.shop.buying import PurchaseTools, SupplierTools
from examples.shop.customers import CustomerTools
from examples.shop.goods import InventoryTools, ProductTools
from examples.shop.money import DiscountTools, InvoiceTools
from examples.shop.orders import OrderTools
from examples.shop.reports import ReportTools
from examples.shop.sending import ReturnTools, ShipmentTools
from examples.shop.stock import Shop


class ShopServer(MCPServer):
    """Refuses arguments that a tool does not have; the SDK would drop them, and a misspelt filter would find all."""

    def __init__(self, tools: list[Tool]) -> None:
        super().__init__(
            "shop",
            version="1.0",
            instructions="A make-believe shop. Its data is made up and lives in memory only.",
            tools=tools,
            log_level="WARNING",
        )
        self._arguments = {tool.name: frozenset(tool.parameters["properties"]) for tool in tools}

    async def call_tool(
        self, name: str, arguments: dict[str, Any], context: Context[Any, Any] | None = None
    ) -> CallToolResult | InputRequiredResult:
        known = self._arguments.get(name)
        if known is not None and (unknown := sorted(set(arguments) - known)):
            takes = ", ".join(sorted(known)) or "none"
            raise ToolError(f"{name} has no argument {unknown[0]!r}. Its arguments: {takes}.")
        return await super().call_tool(name, arguments, context)


def make_server(shop: Shop) -> ShopServer:
    sections = (
        OrderTools(shop),
        CustomerTools(shop),
        ProductTools(shop),
        InventoryTools(shop),
        ShipmentTools(shop),
        ReturnTools(shop),
        InvoiceTools(shop),
        DiscountTools(shop),
        SupplierTools(shop),
        PurchaseTools(shop),
        ReportTools(shop),
    )
    return ShopServer([tool for section in sections for tool in section.tools()])
