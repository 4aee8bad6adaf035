"""Where audit records go."""
