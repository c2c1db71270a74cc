"""The stock HorizontalPodAutoscaler of Kubernetes 1.36 as a pure model: replica calculator, behavior, conditions.

It follows `pkg/controller/podautoscaler` of that version in its numbers too: 64-bit integers of milli-units, and binary
floats.
"""
