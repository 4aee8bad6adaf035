"""Several processes that serve one address: their supervisor, and what each of them knows of the others."""
