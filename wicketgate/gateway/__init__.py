"""The gateway: one call from its look-up to its audit record, and the catalog that calls work on.

Public: ``runtime.ProxyRuntime`` with ``options.RuntimeOptions`` and ``options.RuntimePolicies``,
``lifecycle.Lifecycle`` that keeps it running, and the values that these take and give (``plugin_chain.PluginChain``,
``audit.Auditor``, ``options.CallPolicy``, ``archive.Execution``, ``calls.DryRun``). A call passes ``runtime`` and
``calls``; a refresh passes ``lifecycle``, ``catalog_changes`` and ``catalog_keeper``.
"""
