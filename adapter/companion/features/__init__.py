"""What the companion does, a module each; the table of them is `adapter.companion.plan.FEATURES`."""
