"""Fit a cost profile to measured runs: recover the engine's steps, fit, say how well it fits."""
