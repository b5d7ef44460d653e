"""The simulation inside the API server: /sim routes and the last SSE chunk."""
