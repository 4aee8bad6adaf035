"""The web console of a gate: what each of its pages shows, and its files."""
