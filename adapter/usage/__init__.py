"""Where load comes from: metrics.k8s.io and Prometheus. Each source keeps its last samples with their true times.

Nothing here judges a sample's age: that is the arithmetic's part. A source that fails says so in a sentence.
"""
