"""Pass-through: requests for metrics that are not ours, answered by the adapter behind this one."""
