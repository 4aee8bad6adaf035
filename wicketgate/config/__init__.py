"""From files to what runs: settings, reload, and the making of what they name."""
