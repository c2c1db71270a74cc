"""What knows nothing of the field: back-off, slices of long work, single flights, HTTP with bounds, faults."""
