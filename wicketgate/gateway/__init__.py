"""The gateway: one call from its look-up to its audit record, and the catalog that calls work on.

Public: ``runtime.ProxyRuntime`` with ``options.RuntimeOptions`` and ``options.RuntimePolicies``,
``lifecycle.Lifecycle`` that keeps it running, and what these take and give (``plugin_chain.PluginChain``,
``audit.Auditor``, ``archive.Execution``, ``calls.DryRun``). A call passes ``runtime`` and ``calls``; a refresh passes
``lifecycle`` and ``catalog_keeper``.
"""
