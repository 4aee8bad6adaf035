"""Pure ASGI middleware, outermost first: ``correlation``, the last resort of ``refusals``, ``auth``, the body limit."""
