"""Faults on the real control plane, and what must hold throughout: some in `make test`, all of them in `make chaos`.

Three services, each with inputs of its own (metrics-server, Prometheus, Prometheus and Consul), are scaled by the
stock controller through the adapter. A scenario breaks something, waits, and mends it. Meanwhile no count may shrink,
every request is answered within a second, and after it the right counts return in time.
"""
