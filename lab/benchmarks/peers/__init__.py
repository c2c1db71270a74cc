"""This adapter, prometheus-adapter and KEDA side by side, on the same Prometheus."""
