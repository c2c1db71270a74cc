"""The old name of `slots`, until adapter/registries imports that."""

from adapter.runtime.slots import Claim, grant_slots

__all__ = ["Claim", "grant_slots"]
