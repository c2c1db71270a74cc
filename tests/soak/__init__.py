"""The soak's own parts: its plan, its needs and its checks, without any server."""
