"""The chat-completions dialect: OpenAI and the servers that are compatible with it."""
