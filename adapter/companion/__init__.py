"""The companion, the only process that writes to the cluster. `plan` (pure) decides on actions, `writes` makes them."""
