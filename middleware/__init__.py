"""Pure ASGI middleware, outermost first: ``client_address``, ``correlation``, the last resort of ``refusals``,
``hosts``, ``auth``, the body limit."""
