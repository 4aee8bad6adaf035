"""Coverage-guided fuzzing of the readers of strangers' bytes: ``make fuzz MINUTES=10`` (CONTRIBUTING.md)."""
