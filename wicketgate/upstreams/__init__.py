"""The tool servers behind the gate, one package a kind."""
