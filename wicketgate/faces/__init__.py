"""The faces: what a client sees of the runtime.

`gateway` shows three tools, `transparent` the whole catalog, `registry` the tools as operations and `namespaced` every
tool, resource and prompt under its server's name. Each implements `ToolSurface`; `make_faces` puts them together.
"""
