"""WatermarkPolicies and HPAs as typed objects: defaults as in the CRD, every fault named at once."""
