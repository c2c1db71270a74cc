"""Arithmetic is tested for what it answers; how long an example takes says something of the machine only."""

from hypothesis import HealthCheck, settings

settings.register_profile("load", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("load")
