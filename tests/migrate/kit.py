"""Originals, and how tests migrate them."""

import copy
import functools
import json
import operator
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from adapter.commands.files import objects_of
from adapter.commands.migrate.read import NoteKind
from adapter.commands.migrate.write import Migration, Pair, as_yaml, migrate

Object = dict[str, Any]

HERE = Path(__file__).parent
EXAMPLES = HERE.parents[1] / "manifests" / "examples" / "migrate"
BEGINNINGS = yaml.load((HERE / "kit.yaml").read_text(), yaml.CSafeLoader)
ORIGINALS: list[list[Object]] = [
    one for one in yaml.load((HERE / "originals.yaml").read_text(), yaml.CSafeLoader).values() if isinstance(one, list)
]
"""Lists of objects that are migrated together, with the rules of a ConfigMap as data."""


def made(what: str, **spec: Any) -> Object:
    """An object of kit.yaml with these fields in its spec."""
    one: Object = copy.deepcopy(BEGINNINGS[what])
    return one | {"spec": one["spec"] | spec}


wpa, policy = functools.partial(made, "wpa"), functools.partial(made, "policy")


def hpa(*metrics: Object, name: str = "web", **spec: Any) -> Object:
    """An HPA of Deployment web."""
    return changed(made("hpa", **{"metrics": [*metrics] or [resource()], **spec}), "metadata", "name", to=name)


def resource(name: str = "cpu", **target: Any) -> Object:
    """A resource metric of an HPA; without a target cpu at 80 %."""
    target = target or {"averageUtilization": 80}
    kind = "Utilization" if "averageUtilization" in target else "AverageValue"
    return {"type": "Resource", "resource": {"name": name, "target": {"type": kind, **target}}}


def served(kind: str, name: str, average: str = "10", **selector: Any) -> Object:
    """A Pods or External metric of an HPA."""
    target = {"type": "AverageValue", "averageValue": average}
    metric = {"name": name, **({"selector": {"matchLabels": selector}} if selector else {})}
    return {"type": kind, kind.lower(): {"metric": metric, "target": target}}


def scaled(*triggers: Object, **spec: Any) -> Object:
    """A ScaledObject of Deployment web."""
    return made("scaled", **{"triggers": [*triggers] or [prometheus()], **spec})


def prometheus(query: str = "sum(rate(requests_total[2m]))", threshold: str = "10", **metadata: Any) -> Object:
    """A Prometheus trigger."""
    given = {"serverAddress": "http://prometheus:9090", "query": query, "threshold": threshold, **metadata}
    return {"type": "prometheus", "metadata": given}


def cron(start: str, end: str, replicas: str, zone: str = "UTC") -> Object:
    """A cron trigger."""
    return {"type": "cron", "metadata": {"timezone": zone, "start": start, "end": end, "desiredReplicas": replicas}}


def rule(series: str = 'requests_total{namespace!="",pod!=""}', query: str = "", **name: str) -> Object:
    """A rule of prometheus-adapter."""
    named = {key.rstrip("_"): text for key, text in name.items()}  # as_, for `as` is a word of Python
    template = query or "sum(rate(<<.Series>>{<<.LabelMatchers>>}[2m])) by (<<.GroupBy>>)"
    return copy.deepcopy(BEGINNINGS["rule"]) | {"seriesQuery": series, "name": named, "metricsQuery": template}


def rules(*custom: Object, external: tuple[Object, ...] = ()) -> Object:
    """The ConfigMap of prometheus-adapter."""
    text = yaml.safe_dump({"rules": list(custom), "externalRules": list(external)})
    return BEGINNINGS["rules"] | {"data": {"config.yaml": text}}


def with_texts(objects: Sequence[Object]) -> list[Object]:
    """ORIGINALS as a cluster has them: the rules of a ConfigMap are a text."""
    copied = copy.deepcopy(list(objects))
    for one in copied:
        one.get("data", {}).update({key: yaml.safe_dump(rules) for key, rules in one.get("data", {}).items()})
    return copied


def by_rules(name: str, *custom: Object) -> tuple[Object, Object]:
    """These rules, and an HPA with a Pods metric of this name."""
    return rules(*custom), hpa(served("Pods", name))


def migrated_text(text: str, **options: Any) -> Migration:
    """The migration of a text."""
    objects, faults = objects_of(text, "it.yaml")
    assert not faults
    return migrate(objects, **options)


def migrated(*objects: Object, **options: Any) -> Migration:
    """The migration of these objects."""
    return migrated_text("---\n" + "\n---\n".join(map(json.dumps, objects)), **options)


def pair(*objects: Object, **options: Any) -> Pair:
    """The only pair of these objects."""
    migration = migrated(*objects, **options)
    assert not migration.refused
    [one] = migration.pairs
    return one


def spec(*objects: Object, **options: Any) -> Object:
    """The spec of the only policy of these objects."""
    return dict(pair(*objects, **options).objects[0]["spec"])


def query(*objects: Object) -> str:
    """The PromQL of the only metric."""
    [metric] = spec(*objects)["metrics"]
    return str(metric["query"]["promQL"])


def notes(kind: NoteKind | None, *objects: Object, **options: Any) -> str:
    """The notes of a kind (None: of all) on the only pair, a line each."""
    return "\n".join(str(one) for one in pair(*objects, **options).notes if kind in {None, one.kind})


def refusal(*objects: Object) -> str:
    """Why nothing of these objects is migrated."""
    migration = migrated(*objects)
    assert not migration.pairs
    return "\n".join(migration.refused)


def case(name: str) -> Migration:
    """The migration of a published file."""
    return migrated_text((HERE / "cases" / f"{name}.yaml").read_text())


def everything(migration: Migration) -> str:
    """All that a migration says."""
    return " ".join(as_yaml(migration).replace("\n#   ", " ").split())


def changed(data: Object, *path: str | int, to: Any) -> Object:
    """A copy with another value at the path, or with none (`to` is None)."""
    copied = copy.deepcopy(data)
    inner: Any = functools.reduce(operator.getitem, path[:-1], copied)
    if to is None:
        del inner[path[-1]]
    else:
        inner[path[-1]] = to
    return copied
