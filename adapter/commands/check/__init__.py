"""The `check` command: whether registries can be asked, know their services, and list the pods of the policies."""
