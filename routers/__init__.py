"""The HTTP paths of the service: one module a path or family of paths; each gives a router to ``app.main``."""
