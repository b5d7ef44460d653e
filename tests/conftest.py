"""Shared by all tests."""

from hypothesis import HealthCheck, settings

# Same examples in every run, and no complaint about a slow machine: a test tells of the code.
settings.register_profile(
    "steady", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("steady")
