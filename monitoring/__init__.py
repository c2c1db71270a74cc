"""What a platform team sees of the adapter in Grafana and Prometheus, as code. Never part of the image."""
