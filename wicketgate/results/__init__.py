"""Results of tools: the envelope that a model is shown, and views of what is kept out of its context (FACE-17).

Public: ``firewall.seal_result`` makes the envelope and the artifacts of a result; ``selector.select`` gives a bounded
view of an artifact, with ``view`` for text and ``json_part`` for JSON; ``envelope`` reads MCP results. ``bulk``
weighs values and writes their bytes. Nothing here stores anything.
"""
