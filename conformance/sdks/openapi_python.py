"""Operations over the package that openapi-python-client has generated, and a chat over ``clients/python``."""

import asyncio
import os

from gate_api import AuthenticatedClient
from gate_api.api.operations import call_operation, search_operations
from gate_api.models import (
    CallOperationBody,
    CallOperationBodyInput,
    FoundOperations,
)
from wicketgate_client import Client, Done, TextDelta

URL, KEY = os.environ["WG_URL"], os.environ["WG_KEY"]


async def main() -> None:
    gate = AuthenticatedClient(base_url=URL, token=KEY)
    found = await search_operations.asyncio(client=gate, query="current time in a city")
    assert isinstance(found, FoundOperations)
    name = found.operations[0].name
    given = CallOperationBody(operation=name, input_=CallOperationBodyInput.from_dict({"timezone": "Asia/Tokyo"}))
    print(await call_operation.asyncio(client=gate, body=given))
    async with Client(URL, KEY) as client, client.chat("What time is it in Tokyo?") as chat:
        async for event in chat:
            match event:
                case TextDelta(content):
                    print(content, end="", flush=True)
                case Done(reason):
                    print(f"\n{reason}")


asyncio.run(main())
