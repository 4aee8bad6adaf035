"""The plugins that come with Wicketgate, which a configuration names under ``plugins`` (S2; gatekit E).

Public: ``tool_manager.ToolManager``; ``filters.SecretsFilter``, ``PiiFilter`` and ``PromptInjectionFilter``, over the
base ``text_filter.TextFilter``; ``result_notes.CallTrace`` and ``TokenUsage``. ``wicketgate.plugin_api`` is what they,
and plugins of others, are made of.
"""
