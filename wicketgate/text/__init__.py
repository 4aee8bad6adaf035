"""Texts that are read or written everywhere: ``correlation`` ids, ``redaction`` of secrets, ``yaml``."""
