"""Agent frameworks behind FastAPI, as their guides show it, giving our five events. Runs in an environment of its own.

``python engine_frameworks.py pydantic-ai|openai-agents http://127.0.0.1:PORT/v1``
"""

import json
import socket
import sys
from collections.abc import AsyncIterator, Callable
from importlib import import_module
from typing import Any

Run = Callable[[str], AsyncIterator[str]]
"""From the user's words to the events of the stream."""


def main() -> None:
    name, base_url = sys.argv[1:]
    fastapi, responses, uvicorn = map(import_module, ("fastapi", "fastapi.responses", "uvicorn"))
    run: Run = {"pydantic-ai": _pydantic_ai, "openai-agents": _openai_agents}[name](base_url)
    app = fastapi.FastAPI()

    async def chat(body: dict[str, Any]) -> Any:
        return responses.StreamingResponse(run(body["messages"][-1]["content"]), media_type="text/event-stream")

    app.post("/engine/chat")(chat)
    listener = socket.create_server(("127.0.0.1", 0))
    print(f"ready on http://127.0.0.1:{listener.getsockname()[1]}", flush=True)
    config = uvicorn.Config(app, log_level="warning", access_log=False, backlog=1024)
    uvicorn.Server(config).run(sockets=[listener])


def _event(name: str, data: dict[str, Any]) -> str:
    return f"event: {name}\ndata: {json.dumps(data)}\n\n"


def _done(prompt_tokens: int, completion_tokens: int) -> str:
    usage = {"prompt_tokens": prompt_tokens, "completion_tokens": completion_tokens}
    return _event("done", {"finish_reason": "stop", "usage": usage})


async def tool_browse(path: str) -> str:
    """Browse the tools below a path."""
    return json.dumps({"cards": [], "path": path})


def _pydantic_ai(base_url: str) -> Run:
    ai, messages = import_module("pydantic_ai"), import_module("pydantic_ai.messages")
    provider = import_module("pydantic_ai.providers.openai").OpenAIProvider(base_url=base_url, api_key="key")
    model = import_module("pydantic_ai.models.openai").OpenAIChatModel("m", provider=provider)
    agent = ai.Agent(model, tools=[tool_browse])

    async def run(prompt: str) -> AsyncIterator[str]:
        async with agent.run_stream_events(prompt) as events:
            async for event in events:
                match event:
                    case messages.PartStartEvent(part=messages.TextPart(content=text)) if text:
                        yield _event("text-delta", {"content": text})
                    case messages.PartDeltaEvent(delta=messages.TextPartDelta(content_delta=text)):
                        yield _event("text-delta", {"content": text})
                    case messages.FunctionToolCallEvent(part=part):
                        arguments = part.args_as_dict()
                        yield _event(
                            "tool-call", {"id": part.tool_call_id, "name": part.tool_name, "arguments": arguments}
                        )
                    case messages.FunctionToolResultEvent(part=part):
                        yield _event("tool-result", {"id": part.tool_call_id, "output": str(part.content)})
                    case ai.AgentRunResultEvent(result=result):
                        usage = result.usage
                        yield _done(usage.input_tokens or 0, usage.output_tokens or 0)

    return run


def _openai_agents(base_url: str) -> Run:
    agents = import_module("agents")
    agents.set_tracing_disabled(True)
    client = import_module("openai").AsyncOpenAI(base_url=base_url, api_key="key")
    model = agents.OpenAIChatCompletionsModel("m", client)
    agent = agents.Agent(name="bench", model=model, tools=[agents.function_tool(tool_browse)])

    async def run(prompt: str) -> AsyncIterator[str]:
        result = agents.Runner.run_streamed(agent, prompt)
        async for event in result.stream_events():
            if event.type == "raw_response_event" and event.data.type == "response.output_text.delta":
                yield _event("text-delta", {"content": event.data.delta})
            elif event.type == "run_item_stream_event" and event.name == "tool_called":
                raw = event.item.raw_item
                arguments = json.loads(raw.arguments)
                yield _event("tool-call", {"id": raw.call_id, "name": raw.name, "arguments": arguments})
            elif event.type == "run_item_stream_event" and event.name == "tool_output":
                yield _event("tool-result", {"id": event.item.raw_item["call_id"], "output": str(event.item.output)})
        usage = result.context_wrapper.usage
        yield _done(usage.input_tokens, usage.output_tokens)

    return run


if __name__ == "__main__":
    main()
