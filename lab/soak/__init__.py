"""Random steps without an end, whose decisions are decided again: `python -m lab.soak`.

Random policies, pods, loads, registry changes and faults on the real control plane, with the stock controller. All the
time every policy's decision is fetched with its document and decided again.
"""
