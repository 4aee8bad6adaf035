"""Models behind the chat loop: one interface, and one room for each provider dialect.

Public: ``provider`` (Provider, ModelRequest and the events of a turn). ``openai.exchange`` and ``anthropic.exchange``
implement it over HTTP, ``scripted.model`` without a model. In a dialect's room the codec (``request``, ``stream``) is
pure; only ``exchange`` and ``endpoint`` do I/O. The dialects share ``turn_reading``, ``tool_calls`` and ``failures``.
"""
