"""The `decide` document: one policy with every input of its decision, read, written and decided on."""
