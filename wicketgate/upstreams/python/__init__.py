"""Typed Python functions of an installed package as tools, called in this process.

Public is ``upstream.PythonUpstream``. ``tool`` makes a tool of a function, ``results`` its result, and ``caller`` sends
what the function logs while it runs.
"""
