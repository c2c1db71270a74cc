"""From a changed object, sample or roster to the next snapshot: index, delay queue, evaluator, worker."""
