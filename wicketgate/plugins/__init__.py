"""The plugins that come with Wicketgate, which a configuration names under ``plugins`` (ROUTE-18 to ROUTE-25).

Public: ``rewriting.ToolManager``, ``CallTrace`` and ``TokenUsage``; ``filters.SecretsFilter``, ``PiiFilter`` and
``PromptInjectionFilter``, over the base ``text_filter.TextFilter``. They, and plugins of others, are made of
``wicketgate.plugin_api``.
"""
