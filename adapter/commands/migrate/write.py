"""From objects of any known kind to policies and HPAs, as YAML with notes, held against our own readers."""

import json
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import yaml

from adapter.commands.files import ManifestObject
from adapter.commands.migrate import hpa, keda, wpa
from adapter.commands.migrate.prometheus_adapter import AdapterRules, is_rules, read_rules
from adapter.commands.migrate.read import Draft, Fields, Goal, Note, NoteKind, Refusal, quantity
from adapter.commands.terminal.output import printable
from adapter.load.quantity import percent_text
from adapter.load.spec import Bounds, Policy, Strategy
from adapter.policy.behavior import SHIPPED_PACE, following_behavior, hpa_manifest
from adapter.policy.conformance import Flaw, Wiring, flaws
from adapter.policy.documents import PolicyError, mapping_at
from adapter.policy.hpa import CrossVersionReference, parse_hpa
from adapter.policy.watermark_policy import API_VERSION, GROUP, KIND, parse_policy

_WIDTH = 116
_SETTINGS = "The adapter's settings need this as well (docs/configuration.md):"
_READERS: Mapping[str, tuple[str, str, Callable[[Fields, Sequence[AdapterRules]], Draft]]] = {
    wpa.KIND: (wpa.API_GROUP, "wpa", lambda root, _: wpa.read(root)),
    keda.KIND: (keda.API_GROUP, "scaledobject", lambda root, _: keda.read(root)),
    hpa.KIND: (hpa.API_GROUP, "hpa", hpa.read),
}
"""The kinds that become a policy and an HPA: the API group, what kubectl calls them, and the reader."""
_RIVAL = {
    keda.KIND: "KEDA's own HPA of the target would be a second one, and two HPAs of the same pods do not act",
    wpa.KIND: "two controllers would set the count",
}
"""The kinds whose controllers scale by themselves, and why they have to go first."""
_NOTHING = (
    "there is nothing to migrate. Give a WatermarkPodAutoscaler (datadoghq.com), a ScaledObject (keda.sh), an HPA or a "
    "WatermarkPolicy"
)
_OWN_RULES = (
    "a policy replaces a pod that is pulled out (Ready, without traffic) after 60 s (pulledOut.replace: false: never); "
    "while fewer than 50 % of the pods serve the count does not fall (minServingPercent: 0: it may)"
)
_BOUNDS = Bounds(minimum=1, maximum=10)
_YOURS = "a policy names neither its target nor bounds: write yours in the place of Deployment {}, {} and {}"


class Pair(NamedTuple):
    """A policy and its HPA, in the order in which they are applied, with the notes; of a policy alone only the HPA."""

    kind: str
    name: str
    file: str
    objects: Sequence[Mapping[str, Any]]
    notes: Sequence[Note]


class Migration(NamedTuple):
    """All pairs of one run in the order of the input, the settings that they need, notes on the run, refusals."""

    pairs: Sequence[Pair]
    settings: Mapping[str, Any]
    notes: Sequence[Note]
    refused: Sequence[str]


def migrate(objects: Sequence[ManifestObject], *, low_percent: int | None = None) -> Migration:
    """Migrate every object that can be; other kinds are passed over. `low_percent` writes targets as watermarks."""
    notes, refused, pairs = list[Note](), list[str](), list[Pair]()
    rules, servers, seen = list[AdapterRules](), list[Mapping[str, Any]](), dict[tuple[str, ...], str]()
    for one in filter(is_rules, objects):
        try:
            rules.append(read_rules(one, notes))
        except Refusal as refusal:
            refused.append(f"{one.place()}: the rules of prometheus-adapter: {refusal}")
    followed = [(one.namespace, _policy_of(one)) for one in objects]
    for one in objects:
        named, attempt = f"{one.kind} {one.name}", [*servers]  # a refused object leaves no server behind
        try:
            if why := _left_out(one, followed):
                notes.append(Note(NoteKind.UNREAD, "", None, f"{named} {why}, and is left out"))
            elif (one.group, one.kind) == (GROUP, KIND):
                pairs.append(_claimed(_hpa_of(one), one, seen))
            elif one.kind in _READERS:
                pairs.append(_claimed(_pair(one, rules, attempt, low_percent), one, seen))
                servers = attempt
        except (Refusal, PolicyError) as error:
            reasons = "; ".join(map(str, error.faults)) if isinstance(error, PolicyError) else str(error)
            refused.append(f"{one.place()}: {named} is not migrated: {reasons}")
        except (TypeError, ValueError, AttributeError, KeyError):  # of a field that our readers trust
            refused.append(f"{one.place()}: {named} is not migrated: the API server would not admit it")
    if not pairs and not refused:
        refused.append("; ".join(one.sentence for one in notes if one.sentence.endswith("left out")) or _NOTHING)
    listed = [{"name": _server_name(index), **server} for index, server in enumerate(servers)]
    settings = {"prometheus": {"inlineQueries": True, "servers": listed}} if listed else {}
    return Migration(pairs, settings, notes, refused)


def _left_out(one: ManifestObject, followed: Sequence[tuple[str, str]]) -> str:
    """Why an object that could be migrated is left out; empty where it is not."""
    if (one.group, one.kind) == (GROUP, KIND) and (one.namespace, one.name) in followed:
        return "has its HPA already"
    owners = one.metadata.get("ownerReferences") if one.kind == hpa.KIND else None
    for owner in owners or ():
        if isinstance(owner, Mapping) and owner.get("kind") in _RIVAL:
            return f"is the HPA of {owner['kind']} {owner.get('name')}, which is what to migrate"
    return "follows a policy already" if _policy_of(one) else ""


def _policy_of(one: ManifestObject) -> str:
    """The policy that an HPA follows; empty for none, and for other objects."""
    metrics = mapping_at(one.data, "spec").get("metrics") if one.kind == hpa.KIND else None
    listed = metrics if isinstance(metrics, list) else ()
    described = (mapping_at(each, "object", "describedObject") for each in listed)
    return next((str(each.get("name")) for each in described if each.get("kind") == KIND), "")


def _claimed(pair: Pair, one: ManifestObject, seen: dict[tuple[str, ...], str]) -> Pair:
    """The pair, whose name and target no other one has. Raises Refusal: both would scale the same pods."""
    target = pair.objects[-1]["spec"]["scaleTargetRef"]
    keys = {"name": (one.namespace, pair.name), "target": (one.namespace, target["kind"], target["name"])}
    for what, key in keys.items():
        if key in seen:
            raise Refusal(f"its {what} is already that of {seen[key]}; migrate one of them")
    seen |= dict.fromkeys(keys.values(), f"{pair.kind} {pair.name}")
    return pair


# --- a pair ---


def _pair(
    one: ManifestObject, rules: Sequence[AdapterRules], servers: list[Mapping[str, Any]], low_percent: int | None
) -> Pair:
    """The pair of an object; servers that it needs are added. Raises Refusal and PolicyError."""
    root = Fields.of(one.data)
    group, short, read = _READERS[one.kind]
    if one.group != group:
        raise Refusal(f"apiVersion: {one.api_version} is not one of {group}")
    draft = read(root, rules)
    root.name_unread()
    _keep_one_kind(draft)
    if not draft.goals:
        raise Refusal(f"no metric can be migrated. {'; '.join(draft.reasons) or 'It has none'}")
    _passage(draft, short)
    _keep_defaults(draft)
    if low_percent:
        draft.goals = [_banded(goal, draft, low_percent) if "target" in goal.values else goal for goal in draft.goals]
    common = {"namespace": draft.namespace, "labels": dict(draft.labels)}
    metadata = {"name": draft.name, **{key: value for key, value in common.items() if value}}
    spec = {
        **({"strategy": "Ratio"} if any("target" in goal.values for goal in draft.goals) else {}),
        "tolerance": percent_text(draft.tolerance).replace(" ", ""),
        **draft.spec,
        "metrics": [_metric(goal, servers) for goal in draft.goals],
    }
    policy = {"apiVersion": API_VERSION, "kind": KIND, "metadata": metadata, "spec": spec}
    parsed, bounds = parse_policy(policy), Bounds(minimum=draft.minimum, maximum=draft.maximum)
    behavior = following_behavior(parsed, bounds.maximum) if draft.behavior is None else draft.behavior
    manifest = hpa_manifest(metadata, draft.name, draft.target, bounds, behavior, draft.kept)
    for flaw in _flaws(parsed, manifest):
        if flaw.reason == "WatermarksTooClose" and low_percent:
            draft.note(NoteKind.TO_DO, flaw.message, "spec.metrics")
    unique = {(note.kind, note.field, note.sentence): note for note in draft.notes}
    notes = sorted(unique.values(), key=lambda note: list(NoteKind).index(note.kind))
    return Pair(draft.kind, draft.name, one.file, [policy, manifest], notes)


def _flaws(policy: Policy, manifest: Mapping[str, Any]) -> tuple[Flaw, ...]:
    return flaws(Wiring(policy=policy, hpa=parse_hpa(manifest), has_tolerance=True))


def _keep_one_kind(draft: Draft) -> None:
    """Leave metrics of the whole service out where others are for one pod; a policy has one algorithm."""
    totals = [goal for goal in draft.goals if goal.total]
    if len(totals) == len(draft.goals) > 0:
        draft.spec["algorithm"] = "Absolute"
        return
    for goal in totals:
        draft.goals.remove(goal)
        draft.notes[:] = [note for note in draft.notes if not note.field.startswith(goal.path)]
        sentence = "is left out: its target is for the whole service (Value), and the others' are for one pod"
        draft.note(NoteKind.LOST, sentence, goal.path, goal.name)


def _passage(draft: Draft, short: str) -> None:
    """Note what to do first, then, last, and the way back."""
    where, target = f" -n {draft.namespace}" if draft.namespace else "", draft.target
    named = f"{short} {draft.name}{where}"
    first = f"first save the original (kubectl get {named} -o yaml) and, where Argo CD, Flux or Helm owns it,"
    source = "put the new pair into its source, or it is set back"
    then = "apply the policy and the HPA, which takes this one's place"
    back = "kubectl replace --force -f the saved HPA"
    if rival := _RIVAL.get(draft.kind):
        source = f"remove it from its source, or it is made again: {rival}"
        then = f"kubectl delete {named}, and apply the policy and the HPA"
        back = "delete the new HPA, then apply the saved original"
    passage = [f"{first} {source}. Then {then}. Last: effective-load check. The way back: {back}"]
    if draft.sleeps:
        command = f"kubectl scale {target.kind.lower()} {target.name}{where} --replicas=1"
        wake = f"if {target.kind} {target.name} stands at 0 then, wake it by hand, which no HPA does: {command}"
        passage.append(wake)
    draft.notes[:0] = [Note(NoteKind.TO_DO, "", None, sentence) for sentence in passage]


def _keep_defaults(draft: Draft) -> None:
    """Write the fields whose defaults do what the original does not, or note the difference in numbers."""
    if any((goal.resource or {}).get("name") == "cpu" and not goal.is_ratio for goal in draft.goals):
        draft.spec.setdefault("saturationFactor", "1")
    if any(goal.by_pod for goal in draft.goals):
        draft.spec.setdefault("acceptZeroUsage", True)
    elif "acceptZeroUsage" not in draft.spec and any(goal.resource for goal in draft.goals):
        effect = "acceptZeroUsage: true lowers it, even if a source is wrong"
        draft.note(NoteKind.DIFFERS, f"while every pod uses exactly 0 the count stays; {effect}", "spec.metrics")
    draft.note(NoteKind.DIFFERS, _OWN_RULES)
    if any(goal.server.get("url") == hpa.UNKNOWN_URL for goal in draft.goals):
        draft.note(NoteKind.TO_DO, "write the address of your Prometheus into the settings")


def _banded(goal: Goal, draft: Draft, low_percent: int) -> Goal:
    """The goal with watermarks in place of its target, and what a pod carries with them."""
    high = goal.values["target"]
    low = high * low_percent / 100
    up, down = 1 + draft.tolerance, 1 - draft.tolerance
    shown = percent_text if goal.is_ratio else quantity
    above, to, below, least, original = map(shown, (high * up, high, low * down, low, high * down))
    sentence = (
        f"a rise begins above {above} a pod and ends at {to} or less, as today. A fall begins below {below} and ends "
        f"at {least} or more; today it begins below {original} and ends at up to {to}"
    )
    draft.note(NoteKind.DIFFERS, sentence, goal.path, goal.name)
    return replace(goal, values={"highWatermark": high, "lowWatermark": low})


def _metric(goal: Goal, servers: list[Mapping[str, Any]]) -> dict[str, Any]:
    source: dict[str, Any] = {"resource": goal.resource}
    if goal.resource is None:
        if goal.server not in servers:
            servers.append(goal.server)
        source = {"query": {"promQL": goal.query, "server": _server_name(servers.index(goal.server))}}
    return {"name": goal.name, **source, **{key: goal.shown(value) for key, value in goal.values.items()}}


def _server_name(index: int) -> str:
    return f"prometheus-{index + 1}" if index else "prometheus"


def _hpa_of(one: ManifestObject) -> Pair:
    """The HPA of a policy. It goes down at the pace that we ship. Raises PolicyError."""
    policy, given = parse_policy(one.data), one.metadata.get("namespace")
    metadata = {"name": policy.hpa, **({"namespace": given} if given else {})}
    target = CrossVersionReference("apps/v1", "Deployment", policy.hpa)
    # Strategy Step waits by itself.
    pace = None if policy.strategy is Strategy.STEP and policy.cooldown.down else SHIPPED_PACE
    behavior = following_behavior(policy, _BOUNDS.maximum, pace)
    manifest = hpa_manifest(metadata, policy.name, target, _BOUNDS, behavior)
    notes = [Note(NoteKind.TO_DO, "spec", None, _YOURS.format(policy.hpa, _BOUNDS.minimum, _BOUNDS.maximum))]
    notes += [Note(NoteKind.DIFFERS, "", None, flaw.message) for flaw in _flaws(policy, manifest)]
    return Pair(KIND, policy.hpa, one.file, [manifest], notes)


# --- output ---


def as_yaml(migration: Migration) -> str:
    """The new objects as documents, with the notes as comments; the settings are the first comment."""
    lines = _dump(migration.settings).splitlines() if migration.settings else []
    head = [f"# {_SETTINGS}", *(f"#   {printable(line)}" for line in lines)] if lines else []
    head += [*_comments(migration.notes), *_comments(migration.refused)]
    documents = []
    for pair in migration.pairs:
        comments = _comments([f"{pair.kind} {pair.name}, from {pair.file}", *pair.notes])
        documents.append("\n".join([*comments, "\n---\n".join(map(_dump, pair.objects))]))
    return "\n---\n".join(["\n".join(head)] * bool(head) + documents) + "\n"


def _comments(notes: Iterable[object]) -> Iterator[str]:
    wrapper = textwrap.TextWrapper(
        _WIDTH, initial_indent="# ", subsequent_indent="#   ", break_long_words=False, break_on_hyphens=False
    )
    for note in notes:
        yield from wrapper.wrap(printable(str(note)))


def _dump(data: Mapping[str, Any]) -> str:
    """An object as YAML, without an end of line."""
    plain = json.loads(json.dumps(data))  # nothing is shared, so nothing becomes an alias
    return yaml.safe_dump(plain, sort_keys=False, width=_WIDTH).rstrip("\n")
