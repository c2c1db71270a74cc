"""One module for each feature of the companion: its plan, what follows from its writes, and its conditions."""
