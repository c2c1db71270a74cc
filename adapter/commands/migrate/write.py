"""From objects of any known kind to policies and HPAs, as YAML with notes or JSON, held against our own readers."""

import math
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import yaml

from adapter.commands.files import ManifestObject
from adapter.commands.migrate import hpa, keda, prometheus_adapter, wpa
from adapter.commands.migrate.read import Draft, Fields, Goal, Note, NoteKind, Refusal, Servers, quantity
from adapter.commands.terminal.output import printable
from adapter.load.quantity import percent_text
from adapter.load.spec import Algorithm, Bounds, Policy, Strategy
from adapter.policy.behavior import SHIPPED_PACE, following_behavior, hpa_manifest
from adapter.policy.conditions import Reason
from adapter.policy.conformance import Wiring, flaws
from adapter.policy.documents import PolicyError
from adapter.policy.hpa import DEFAULT_TOLERANCE, CrossVersionReference, parse_hpa
from adapter.policy.watermark_policy import API_VERSION, GROUP, KIND, MOST_METRICS, parse_policy

_WIDTH = 116
_SETTINGS = "The adapter's settings need this as well (docs/configuration.md):"
_PLACEHOLDER_MOST = 10
_AUTHENTICATION = "holds credentials of KEDA's triggers; a policy's servers have theirs in the settings"
_UNMIGRATED = {
    (keda.API_GROUP, "ScaledJob"): "starts jobs, whose count no HPA sets: leave it to KEDA",
    (keda.API_GROUP, "TriggerAuthentication"): _AUTHENTICATION,
    (keda.API_GROUP, "ClusterTriggerAuthentication"): _AUTHENTICATION,
}
_MAKERS = {keda.KIND, wpa.KIND}
"""The kinds whose controllers make HPAs of their own."""
_KNOWN = (
    "a WatermarkPodAutoscaler (datadoghq.com), a ScaledObject (keda.sh), a HorizontalPodAutoscaler (with the ConfigMap "
    "of prometheus-adapter where that serves its metrics) or a WatermarkPolicy"
)
_OWN_RULES = (
    "a policy does what the original does not: a pod that is pulled out (Ready, without traffic) counts as a registry, "
    "a readiness gate or an EndpointSlice says, and is replaced after 60 s (pulledOut.replace: false: never); while "
    "fewer than 50 % of the pods serve the count does not fall (minServingPercent: 0: it may); without a fresh sample "
    "for 90 s the count stays"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """A policy and its HPA with the notes on them; `objects` are those that are new."""

    kind: str
    name: str
    file: str
    objects: tuple[Mapping[str, Any], ...]
    notes: tuple[Note, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Migration:
    """All pairs of one run in the order of the input, the settings that they need, notes on the run, refusals."""

    pairs: tuple[Pair, ...]
    settings: Mapping[str, Any]
    notes: tuple[Note, ...]
    refused: tuple[str, ...]


def migrate(objects: Sequence[ManifestObject], *, low_percent: int | None = None, tolerance: bool = True) -> Migration:
    """Migrate every object that can be; other kinds are passed over.

    `low_percent` writes a target as two watermarks. `tolerance`: whether the cluster's HPAs have that field.
    """
    notes, refused, pairs = list[Note](), list[str](), list[Pair]()
    rules, servers, seen = _rules(objects, notes, refused), Servers(), dict[tuple[str, ...], str]()
    given = [_policy_of(one) for one in objects if (one.group, one.kind) == ("autoscaling", hpa.KIND)]
    for one in objects:
        named = f"{one.kind} {one.name}"
        if why := _left_out(one, given):
            notes.append(Note(NoteKind.UNREAD, "", None, f"{named} {why}"))
            continue
        attempt = servers.copy()  # an object that is refused halfway leaves nothing behind
        try:
            draft = _draft(one, rules, attempt)
            if draft is not None:
                pair = _pair(draft, one.file, low_percent, tolerance)
            elif (one.group, one.kind) == (GROUP, KIND):
                pair = _hpa_of(one, tolerance)
            else:
                continue
            _claim(pair, one.namespace, seen)
        except (Refusal, PolicyError) as error:
            reasons = "; ".join(map(str, error.faults)) if isinstance(error, PolicyError) else str(error)
            refused.append(f"{one.place()}: {named} is not migrated: {reasons}")
        else:
            pairs.append(pair)
            servers = attempt
    if not pairs and not refused:
        left_out = [note.sentence for note in notes if note.sentence.endswith("left out")]
        refused.append("; ".join(left_out) or f"there is nothing to migrate. Give {_KNOWN}")
    return Migration(pairs=tuple(pairs), settings=servers.settings(), notes=tuple(notes), refused=tuple(refused))


def _rules(
    objects: Sequence[ManifestObject], notes: list[Note], refused: list[str]
) -> prometheus_adapter.AdapterRules | None:
    """The configuration of prometheus-adapter; None without one, or where it is not readable."""
    found = [one for one in objects if prometheus_adapter.is_rules(one)]
    if len(found) > 1:
        refused.append(f"{found[1].place()}: is a second configuration of prometheus-adapter; give one")
    try:
        rules, unread = prometheus_adapter.read_rules(found[0]) if len(found) == 1 else (None, [])
    except Refusal as refusal:
        refused.append(f"{found[0].place()}: the rules of prometheus-adapter: {refusal}")
        return None
    notes += unread
    return rules


def _left_out(one: ManifestObject, followed: Sequence[tuple[str, str] | None]) -> str:
    """Why an object that could be migrated is left out; empty where it is not."""
    if (one.group, one.kind) in _UNMIGRATED:
        return f"{_UNMIGRATED[one.group, one.kind]}; it is left out"
    if (one.group, one.kind) == (GROUP, KIND) and (one.namespace, one.name) in followed:
        return "has its HPA already, and is left out"
    if (one.group, one.kind) != ("autoscaling", hpa.KIND):
        return ""
    for owner in one.metadata.get("ownerReferences") or ():
        if owner.get("kind") in _MAKERS:
            maker = f"{owner['kind']} {owner.get('name')}"
            return f"is the HPA of {maker}: what to migrate is that object, and the HPA is left out"
    return "follows a policy already, and is left out" if _policy_of(one) else ""


def _policy_of(one: ManifestObject) -> tuple[str, str] | None:
    """Namespace and name of the policy that an HPA follows."""
    try:
        metrics = parse_hpa(one.data, DEFAULT_TOLERANCE).desired_metrics
    except PolicyError:
        return None
    described = metrics[0].described if metrics else None
    return (one.namespace, described.name) if described else None


def _draft(one: ManifestObject, rules: prometheus_adapter.AdapterRules | None, servers: Servers) -> Draft | None:
    """What an object becomes, None where it is of another kind. Raises Refusal."""
    match (one.group, one.kind):
        case (wpa.API_GROUP, wpa.KIND):
            return wpa.read(Fields.of(one.data), servers)
        case (keda.API_GROUP, keda.KIND):
            return keda.read(Fields.of(one.data), servers)
        case ("autoscaling", hpa.KIND):
            return hpa.read(Fields.of(one.data), rules, servers)
        case _:
            return None


def _claim(pair: Pair, namespace: str, seen: dict[tuple[str, ...], str]) -> None:
    """Note the pair's name and target. Raises Refusal where another pair has one: both would scale the same pods."""
    target = pair.objects[-1]["spec"]["scaleTargetRef"]
    for key in (("name", namespace, pair.name), ("target", namespace, target["kind"], target["name"])):
        if key in seen:
            raise Refusal(f"its {key[0]} is already that of {seen[key]}; migrate one of them")
    seen[("name", namespace, pair.name)] = f"{pair.kind} {pair.name}"
    seen[("target", namespace, target["kind"], target["name"])] = f"{pair.kind} {pair.name}"


def _pair(draft: Draft, file: str, low_percent: int | None, tolerance: bool) -> Pair:
    """The pair of a draft. Raises Refusal and PolicyError."""
    notes, name = draft.notes, draft.policy_name
    if not draft.goals:
        raise Refusal(f"no metric can be migrated. {'; '.join(draft.reasons) or 'It has none'}")
    if len(draft.goals) > MOST_METRICS:
        raise Refusal(f"has {len(draft.goals)} metrics; a policy has at most {MOST_METRICS}")
    if name != draft.name:
        sentence = f"a policy's name has at most 63 characters; it is {name}"
        notes.append(Note(NoteKind.DIFFERS, "metadata.name", draft.name, sentence))
    _keep_defaults(draft)
    goals = [_banded(goal, draft, low_percent) if low_percent and goal.target else goal for goal in draft.goals]
    by_target = any(goal.target for goal in goals)
    policy = {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": draft.metadata(name),
        "spec": {
            **({} if name == draft.name else {"hpa": draft.name}),
            **({"strategy": "Ratio"} if by_target else {}),
            "tolerance": percent_text(draft.tolerance).replace(" ", ""),
            **draft.spec,
            "metrics": [_metric(goal) for goal in goals],
        },
    }
    bounds = Bounds(minimum=draft.minimum, maximum=draft.maximum)
    manifest = hpa_manifest(draft.metadata(draft.name), name, draft.target, bounds, draft.behavior or {}, draft.kept)
    parsed = parse_policy(policy)
    if draft.behavior is None:
        manifest["spec"]["behavior"] = following_behavior(parsed, manifest, tolerance=tolerance)
    elif not tolerance:
        for rules in manifest["spec"]["behavior"].values():
            del rules["tolerance"]
    notes += [
        Note(NoteKind.TO_DO, "spec.tolerance", None, flaw.message)
        for flaw in flaws(Wiring(policy=parsed, hpa=parse_hpa(manifest, DEFAULT_TOLERANCE), has_tolerance=tolerance))
        if flaw.reason is Reason.TOLERANCE or (low_percent and flaw.reason is Reason.WATERMARKS_TOO_CLOSE)
    ]
    return Pair(kind=draft.kind, name=draft.name, file=file, objects=(policy, manifest), notes=_ordered(notes))


def _keep_defaults(draft: Draft) -> None:
    """Write the fields whose defaults do what the original does not, or note the difference in numbers."""
    if any(goal.is_plain_cpu for goal in draft.goals):
        draft.spec.setdefault("saturationFactor", "1")
    if any(goal.by_pod for goal in draft.goals):
        draft.spec.setdefault("acceptZeroUsage", True)
    elif "acceptZeroUsage" not in draft.spec and any("resource" in goal.source for goal in draft.goals):
        sentence = (
            "while every pod uses exactly 0 the count stays; the original goes to its minimum. acceptZeroUsage: true "
            "does that, also while a broken source reports 0"
        )
        draft.notes.append(Note(NoteKind.DIFFERS, "spec.metrics", None, sentence))
    draft.notes.append(Note(NoteKind.DIFFERS, "", None, _OWN_RULES))


def _banded(goal: Goal, draft: Draft, low_percent: int) -> Goal:
    """The goal with watermarks in place of its target, and what a pod carries with them."""
    assert goal.target is not None
    high, low = goal.target, goal.target * low_percent / 100
    up, down = 1 + draft.tolerance, 1 - draft.tolerance
    shown = percent_text if goal.is_ratio else quantity
    above, to, below, least, original = map(shown, (high * up, high, low * down, low, high * down))
    draft.notes.append(
        Note(
            NoteKind.DIFFERS,
            goal.path,
            goal.name,
            f"a rise begins above {above} a pod and ends at {to} or less, as today. A fall begins below {below} and "
            f"ends at {least} or more; today it begins below {original} and ends at up to {to}",
        )
    )
    return replace(goal, target=None, high=high, low=low)


def _metric(goal: Goal) -> dict[str, Any]:
    values = {"target": goal.target, "highWatermark": goal.high, "lowWatermark": goal.low}
    return {
        "name": goal.name,
        **goal.source,
        **{key: goal.shown(value) for key, value in values.items() if value is not None},
    }


def _hpa_of(one: ManifestObject, tolerance: bool) -> Pair:
    """The HPA of a policy. It goes down at the pace that we ship. Raises PolicyError."""
    policy, notes = parse_policy(one.data), list[Note]()
    least = _fewest_replicas(policy)
    most = max((schedule.maximum for schedule in policy.schedules if schedule.maximum is not None), default=0)
    if most < least:
        most = max(_PLACEHOLDER_MOST, least)
        sentence = f"the policy names no largest count: {most} is a placeholder; write yours, and minReplicas"
        notes.append(Note(NoteKind.TO_DO, "spec.maxReplicas", None, sentence))
    sentence = (
        "the policy does not name its target: this is the Deployment of the HPA's name; write yours if it differs"
    )
    notes.append(Note(NoteKind.TO_DO, "spec.scaleTargetRef", None, sentence))
    given = one.metadata.get("namespace")
    metadata = {"name": policy.hpa, **({"namespace": given} if given else {})}
    target, bounds = CrossVersionReference("apps/v1", "Deployment", policy.hpa), Bounds(minimum=least, maximum=most)
    manifest = hpa_manifest(metadata, policy.name, target, bounds, {})
    # Strategy Step waits by itself.
    pace = None if policy.strategy is Strategy.STEP and policy.cooldown.down else SHIPPED_PACE
    manifest["spec"]["behavior"] = following_behavior(policy, manifest, down=pace, tolerance=tolerance)
    wiring = Wiring(policy=policy, hpa=parse_hpa(manifest, DEFAULT_TOLERANCE), has_tolerance=tolerance)
    notes += [Note(NoteKind.DIFFERS, "", None, flaw.message) for flaw in flaws(wiring)]
    return Pair(kind=KIND, name=policy.hpa, file=one.file, objects=(manifest,), notes=_ordered(notes))


def _fewest_replicas(policy: Policy) -> int:
    """The least minReplicas with which no metric's watermarks flap; strategy Step has `step.minPods`."""
    least = policy.step.min_pods if policy.strategy is Strategy.STEP else 1
    for metric in policy.metrics if policy.algorithm is Algorithm.AVERAGE else ():
        if metric.high is not None and metric.low is not None and metric.low < metric.high:
            least = max(least, math.ceil(metric.low / (metric.high - metric.low)))
    return max(1, least)


def _ordered(notes: Iterable[Note]) -> tuple[Note, ...]:
    """The notes by kind, what to do first, each once."""
    kinds = list(NoteKind)
    unique = {(note.kind, note.field, note.sentence): note for note in notes}
    return tuple(sorted(unique.values(), key=lambda note: kinds.index(note.kind)))


# --- output ---


def as_json(migration: Migration) -> dict[str, Any]:
    """The migration as JSON data; `policy` is null where the input is a policy."""
    return {
        "pairs": [
            {
                "source": pair.kind,
                "from": pair.file,
                "policy": pair.objects[0] if len(pair.objects) > 1 else None,
                "hpa": pair.objects[-1],
                "notes": [note.data() for note in pair.notes],
            }
            for pair in migration.pairs
        ],
        "settings": migration.settings,
        "notes": [note.data() for note in migration.notes],
        "refused": list(migration.refused),
    }


def as_yaml(migration: Migration) -> str:
    """The new objects as documents, with the notes as comments; the settings are the first comment."""
    lines = dump(migration.settings).splitlines() if migration.settings else []
    head = [f"# {_SETTINGS}", *(f"#   {printable(line)}" for line in lines)] if lines else []
    head += [*_comments(migration.notes), *_comments(migration.refused)]
    documents = []
    for pair in migration.pairs:
        comments = _comments([f"{pair.kind} {pair.name}, from {pair.file}", *pair.notes])
        documents.append("\n".join([*comments, "\n---\n".join(map(dump, pair.objects))]))
    return "\n---\n".join(["\n".join(head)] * bool(head) + documents) + "\n"


def _comments(notes: Iterable[object]) -> Iterator[str]:
    for note in notes:
        yield from textwrap.wrap(
            printable(str(note)), _WIDTH, initial_indent="# ", subsequent_indent="#   ", break_long_words=False,
            break_on_hyphens=False,
        )  # fmt: skip


class _Dumper(yaml.SafeDumper):
    """Never writes an alias: kubectl reads them, people do not."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002  PyYAML calls it
        return True


def dump(data: Mapping[str, Any]) -> str:
    """An object as YAML, without an end of line."""
    text: str = yaml.dump(data, Dumper=_Dumper, sort_keys=False, width=_WIDTH)
    return text.rstrip("\n")
