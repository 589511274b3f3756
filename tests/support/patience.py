"""Property tests on a machine that is busy: no example has a deadline, and slow generation is no fault of the code."""

from hypothesis import HealthCheck, settings

patient = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
"""Put it above `@given`."""
