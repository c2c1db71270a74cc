"""From texts of any known kind to migrated pairs and the settings that they need."""

import contextlib
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from functools import partial
from typing import Any

import yaml

from adapter.commands.migrate import keda, native_hpa, prometheus_adapter, watermark_pod_autoscaler
from adapter.commands.migrate.original import (
    Document,
    Fields,
    MigrationError,
    Note,
    NoteKind,
    Notes,
    printable,
    read_objects,
)
from adapter.commands.migrate.pair import Migrated, Style, write
from adapter.commands.migrate.prometheus_adapter import AdapterRules
from adapter.commands.migrate.queries import SettingsPart
from adapter.policy.documents import MAX_NAME_LENGTH, PolicyError
from adapter.policy.hpa import DEFAULT_TOLERANCE, parse_hpa
from adapter.policy.watermark_policy import KIND as POLICY_KIND
from adapter.runtime.faults import Fault, first_faults

_TITLE = "the objects cannot be migrated"
_MAKERS = {keda.KIND, watermark_pod_autoscaler.KIND}
"""The kinds whose controllers make HPAs of their own."""

_WIDTH = 116
_SETTINGS = "The adapter's settings need this as well (docs/configuration.md):"
_KNOWN = (
    "a WatermarkPodAutoscaler (datadoghq.com), a ScaledObject (keda.sh), a HorizontalPodAutoscaler (autoscaling/v2) or "
    "the configuration of prometheus-adapter (plain or as a ConfigMap with config.yaml)"
)


_AUTHENTICATION = (
    "holds credentials of KEDA's triggers; a policy's queries have theirs in the settings (prometheus.servers)"
)
_UNMIGRATED = {
    (keda.API_GROUP, "ScaledJob"): "starts jobs, which have no count that an HPA could set: leave it to KEDA",
    (keda.API_GROUP, "TriggerAuthentication"): _AUTHENTICATION,
    (keda.API_GROUP, "ClusterTriggerAuthentication"): _AUTHENTICATION,
}
"""Kinds that stand beside those that are migrated, and why each is not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """An object that cannot be migrated: where it is in the input, and every reason."""

    place: str
    kind: str
    name: str
    faults: tuple[Fault, ...]

    def __str__(self) -> str:
        reasons = "; ".join(str(fault).removeprefix(self.place).removeprefix(": ") for fault in self.faults)
        return printable(f"{self.kind or 'object'} {self.name or self.place} is not migrated: {reasons}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Migration:
    """All pairs of one run, in the order of the input; the settings' keys that they need; notes on the whole run.

    `refused`: the objects that cannot be migrated, beside others that can.
    """

    pairs: tuple[Migrated, ...]
    settings: dict[str, Any]
    notes: tuple[Note, ...] = ()
    refused: tuple[Refused, ...] = ()

    @property
    def faults(self) -> list[Fault]:
        """Every reason why an object was refused."""
        return [fault for refusal in self.refused for fault in refusal.faults]


def migrate(texts: Sequence[tuple[str, str]], style: Style | None = None) -> Migration:
    """Migrate every object of the texts that can be, each with its file's name.

    HPAs that another autoscaler makes of its own object, or that follow a policy, are left out, with a note. Raises
    MigrationError with every fault where nothing can be migrated, and for faulty rules.
    """
    notes, part = Notes(), SettingsPart()
    objects = read_objects(texts)
    rules = _rules([document for document in objects if prometheus_adapter.is_rules(document)], notes)
    pairs: list[Migrated] = []
    refused: list[Refused] = []
    seen: dict[tuple[str, ...], str] = {}
    for document in objects:
        if prometheus_adapter.is_rules(document):
            continue
        if why := _left_out(document):
            notes.add(NoteKind.UNREAD, document.place, None, f"{document.full_name} {why}")
            continue
        # An object that is refused halfway leaves nothing behind.
        grown = copy(part)
        try:
            pair = _pair(document, rules, grown, style or Style())
            _claim(pair, seen)
        except MigrationError as error:
            refused.append(
                Refused(place=document.place, kind=document.kind, name=document.full_name, faults=tuple(error.faults))
            )
        else:
            pairs.append(pair)
            part = grown
    if refused and not pairs:
        raise MigrationError(first_faults([fault for refusal in refused for fault in refusal.faults]), _TITLE)
    if not pairs:
        left_out = (note.sentence for note in notes.all() if note.kind is NoteKind.UNREAD)
        nothing = f"there is nothing to migrate but rules; give their HPAs too. Known are {_KNOWN}"
        raise MigrationError([Fault("", None, next(left_out, nothing))], _TITLE)
    return Migration(pairs=tuple(pairs), settings=part.data(), notes=notes.all(), refused=tuple(refused))


def _left_out(document: Document) -> str:
    """Why an object is left out: another autoscaler makes it, or it is migrated already; empty where it is not."""
    if document.kind == POLICY_KIND:
        return "is a policy already, and is left out"
    owners = document.metadata.get("ownerReferences")
    if document.kind != native_hpa.KIND:
        return ""
    for owner in owners if isinstance(owners, list) else ():
        if isinstance(owner, dict) and owner.get("kind") in _MAKERS:
            maker = f"{owner['kind']} {str(owner.get('name'))[:MAX_NAME_LENGTH]}"
            return f"is the HPA of {maker} and is left out: what to migrate is that object"
    with contextlib.suppress(PolicyError):
        if parse_hpa(document.data, DEFAULT_TOLERANCE).desired_metrics:
            return "asks for the count of a policy already, and is left out"
    return ""


def _rules(documents: Sequence[Document], notes: Notes) -> AdapterRules | None:
    """The configuration of prometheus-adapter; None without one. Raises MigrationError."""
    if not documents:
        return None
    found: list[Fault] = []
    rules = prometheus_adapter.read_rules(documents[0], found, notes)
    faults = [fault.within(documents[0].place, ": ") for fault in found]
    if len(documents) > 1:
        advice = f"is a second configuration of prometheus-adapter (the first is {documents[0].place}); give one"
        faults.insert(0, Fault(documents[1].place, None, advice))
    if faults:
        raise MigrationError(first_faults(faults), _TITLE)
    return rules


def _pair(document: Document, rules: AdapterRules | None, part: SettingsPart, style: Style) -> Migrated:
    """The pair of an object. Raises MigrationError."""
    root, place, draft = Fields(document.data, "", [], Notes()), document.place, None
    match (document.group, document.kind):
        case (watermark_pod_autoscaler.API_GROUP, watermark_pod_autoscaler.KIND):
            draft = watermark_pod_autoscaler.read(place, root, part)
        case (keda.API_GROUP, keda.KIND):
            draft = keda.read(place, root, part)
        case ("autoscaling", native_hpa.KIND):
            source = native_hpa.KIND if rules is None else f"{native_hpa.KIND} ({prometheus_adapter.NAME})"
            draft = native_hpa.read(place, root, partial(prometheus_adapter.RulesResolver, rules, part=part), source)
        case (group, kind) if (group, kind) in _UNMIGRATED:
            root.fault("kind", kind, _UNMIGRATED[group, kind])
        case _:
            version = document.data.get("apiVersion")
            shown = f"{version} {document.kind}".strip() if isinstance(version, str) else document.kind
            root.fault("kind", shown or None, f"cannot be migrated; known are {_KNOWN}")
    if root.faults or draft is None:
        raise MigrationError([fault.within(place, ": ") for fault in root.faults])
    return write(draft, style)


def _claim(pair: Migrated, seen: dict[tuple[str, ...], str]) -> None:
    """Note the pair's name and target. Raises MigrationError where another pair has one of them.

    Two pairs of one name would overwrite each other; two of one target would scale it both.
    """
    target = pair.hpa["spec"]["scaleTargetRef"]
    keys = {
        ("name", pair.namespace, pair.name): f"{pair.namespace}/{pair.name}".lstrip("/"),
        ("target", pair.namespace, target["kind"], target["name"]): f"{target['kind']} {target['name']}",
    }
    faults = [
        Fault(pair.place, what, f"is already that of {seen[key]}; migrate one of them")
        for key, what in keys.items()
        if key in seen
    ]
    if faults:
        raise MigrationError(faults)
    seen |= dict.fromkeys(keys, pair.place)


def as_json(migration: Migration) -> dict[str, Any]:
    """The migration as JSON data."""
    return {
        "pairs": [
            {
                "source": pair.source,
                "from": pair.place,
                "policy": pair.policy,
                "hpa": pair.hpa,
                "notes": [note.data() for note in pair.notes],
            }
            for pair in migration.pairs
        ],
        "settings": migration.settings,
        "notes": [note.data() for note in migration.notes],
        "refused": [
            {
                "from": refusal.place,
                "kind": refusal.kind,
                "name": refusal.name,
                "reasons": [str(fault) for fault in refusal.faults],
            }
            for refusal in migration.refused
        ],
    }


def as_yaml(migration: Migration) -> str:
    """Every pair as two documents, with its notes as comments, and the settings as one more comment at the top."""
    lines = dump(migration.settings).splitlines() if migration.settings else []
    parts = [f"# {_SETTINGS}", *(f"#   {printable(line)}" for line in lines)] if lines else []
    parts += [*comments(migration.notes), *comments(migration.refused)]
    for pair in migration.pairs:
        parts += ["---" if parts else "", pair_yaml(pair).rstrip("\n")]
    return "\n".join(part for part in parts if part) + "\n"


def pair_yaml(pair: Migrated) -> str:
    """One pair as two documents with its notes as comments."""
    heading = printable(f"{pair.source} {pair.name}, from {pair.place}")
    lines = [*_wrapped(heading), *comments(pair.notes), dump(pair.policy), "---", dump(pair.hpa)]
    return "\n".join(lines) + "\n"


def comments(notes: Iterable[object]) -> Iterator[str]:
    """The notes, or other sentences, as comments of YAML."""
    for note in notes:
        yield from _wrapped(str(note))


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(
        text, _WIDTH, initial_indent="# ", subsequent_indent="#   ", break_long_words=False, break_on_hyphens=False
    )


class _Dumper(yaml.SafeDumper):
    """Never writes an alias: kubectl reads them, people do not."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002  PyYAML calls it
        return True


def dump(data: Mapping[str, Any]) -> str:
    """An object as YAML, without an end of line."""
    text: str = yaml.dump(data, Dumper=_Dumper, sort_keys=False, width=_WIDTH)
    return text.rstrip("\n")
