"""A model-based test without an end: `python -m lab.soak`.

Random policies, pods, loads, registry changes and faults on the real control plane, with the stock controller. All the
time every policy's decision is fetched with its document and decided again, the counts that the controller set are
compared with the answers that it got, and the true load of the generator bounds every count from below.
"""
