"""The simulation itself: pure Python, no vLLM, no torch."""
