"""Released names, recorded: what dashboards, manifests, scripts and log queries of users depend on."""
