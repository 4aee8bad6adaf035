"""The plugins that come with Wicketgate, by the name they are configured with (S2; gatekit E)."""
