"""The stock HorizontalPodAutoscaler as a pure model: replica calculator, behavior, conditions.

It follows `pkg/controller/podautoscaler` of Kubernetes 1.36.3 in its numbers too: whole milli-units and binary floats,
but no overflow of 64 bits. The real controllers of 1.34.4, 1.35.4, 1.36.3 and 1.37.2 set the same counts
(`tests/replay/hpa/test_real_controller.py`). By their sources these versions differ from it in:

- 1.34: a ContainerResource metric accepts pods without that container.
- 1.34, 1.35: with the gate HPAScaleToZero metrics are asked at a count of 0 also where somebody else set it.
- 1.37: HPAScaleToZero is on by default; a new or changed HPA is synced at once.
"""
