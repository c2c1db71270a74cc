"""Sources of load: metrics.k8s.io and Prometheus. Each keeps its last samples with their own times.

The age of a sample is judged in `load`, not here. A failing source gives its reason as a sentence.
"""
