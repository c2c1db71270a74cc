"""Selectors of the adapter's series in PromQL, with Grafana's variables."""

PREFIX = "effective_load_"
_OPERATORS = ("=~", "!~", "!=")


def selector(name: str, /, **labels: str) -> str:
    """The series of a metric of the chosen clusters and jobs.

    A label's value may begin with =~, !~ or !=; it is equal otherwise. Only a Prometheus of several clusters has
    `cluster`: the variable's `.*` matches series without it.
    """
    chosen = {"cluster": "=~$cluster", "job": "=~$job", **labels}
    matchers = ", ".join(_matcher(label, value) for label, value in chosen.items())
    return f"{PREFIX}{name}{{{matchers}}}"


def _matcher(label: str, value: str) -> str:
    operator = next((one for one in _OPERATORS if value.startswith(one)), "=")
    return f'{label}{operator}"{value.removeprefix(operator)}"'
