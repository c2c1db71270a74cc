"""`check --manifests`: whether policies, HPAs, workloads and settings in files are valid and fit together."""
