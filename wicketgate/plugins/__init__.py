"""The plugins that come with Wicketgate, which a configuration names under ``plugins`` (S2; gatekit E).

Public: ``rewriting.ToolManager``, ``CallTrace`` and ``TokenUsage``; ``filters.SecretsFilter``, ``PiiFilter`` and
``PromptInjectionFilter``, over the base ``text_filter.TextFilter``. They, and plugins of others, are made of
``wicketgate.plugin_api``.
"""
