"""Random steps without an end, compared with a model: `python -m lab.soak`.

Random policies, pods, loads, registry changes and faults on the real control plane, with the stock controller. All the
time every policy's decision is fetched with its document and decided again by the literal model of the rules
(`tests/literal`).
"""
