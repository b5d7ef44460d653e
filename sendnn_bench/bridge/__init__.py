"""Client code that imports vLLM; nothing outside this package does."""
