"""Grafana dashboards on the adapter's own series: `fleet` and `policy`. `python -m monitoring.dashboards --write`."""
