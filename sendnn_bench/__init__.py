"""Benchmark a vLLM deployment before the hardware runs it: client, CLI and reports."""

__version__ = "0.1.0"
