"""The chat loop behind ``POST /engine/chat``: turns of the model, rounds of tools, and one end for every stream.

Public: ``loop.Engine`` runs a ChatRequest of ``contract`` and gives the events of ``events``; ``keyed_runs.KeyedRuns``
keeps runs that a client may come back to; ``limits`` bounds and stops streams; ``fallback.FallbackProvider`` stands
before several models; ``approvals.ApprovalDesk`` judges the owner's decisions.
"""
