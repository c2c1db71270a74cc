"""How well an autoscaler controls: pod-hours at equal shortfall; synthetic services."""
