"""The service around the library: ``main`` makes the application, ``cli`` is the command line.

The other modules are their parts: the lifespan, the port, the MCP endpoint, logs and metrics.
"""
