"""From texts of any known kind to migrated pairs and the part of the settings that they need."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from adapter.migrate import keda, metrics_adapter, native_hpa, prometheus_adapter, watermark_pod_autoscaler
from adapter.migrate.notes import Note, Notes
from adapter.migrate.original import Document, Fields, MigrationError, read_objects
from adapter.migrate.pair import Draft, Migrated, Style, write
from adapter.migrate.prometheus_adapter import Rules
from adapter.migrate.settings_part import SettingsPart
from adapter.runtime.faults import Fault, first_faults

_TITLE = "the objects cannot be migrated"
_KNOWN = (
    "a WatermarkPodAutoscaler (datadoghq.com), a ScaledObject (keda.sh), a HorizontalPodAutoscaler (autoscaling/v2) or "
    "the configuration of prometheus-adapter (plain or as a ConfigMap with config.yaml)"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Migration:
    """All pairs of one run, in the order of the input; the settings' keys that they need; notes on the rules."""

    pairs: tuple[Migrated, ...]
    settings: dict[str, Any]
    notes: tuple[Note, ...] = ()


def migrate(texts: Sequence[tuple[str, str]], style: Style | None = None) -> Migration:
    """Migrate every object of the texts, each with its file's name. Raises MigrationError with every fault."""
    faults: list[Fault] = []
    notes, part = Notes(), SettingsPart()
    objects = read_objects(texts)
    rules = _rules([one for one in objects if prometheus_adapter.is_rules(one)], faults, notes)
    pairs: list[Migrated] = []
    for document in objects:
        if prometheus_adapter.is_rules(document):
            continue
        try:
            pairs.append(_pair(document, rules, part, style or Style()))
        except MigrationError as error:
            faults += error.faults
    faults += _twice(pairs)
    if not pairs and not faults:
        faults.append(
            Fault("", None, f"there is nothing to migrate but rules; give their HPAs too. Known are {_KNOWN}")
        )
    if faults:
        raise MigrationError(first_faults(faults), _TITLE)
    return Migration(pairs=tuple(pairs), settings=part.data(), notes=notes.all())


def _rules(documents: Sequence[Document], faults: list[Fault], notes: Notes) -> Rules | None:
    if len(documents) > 1:
        advice = f"is a second configuration of prometheus-adapter (the first is {documents[0].place}); give one"
        faults.append(Fault(documents[1].place, None, advice))
    if not documents:
        return None
    own: list[Fault] = []
    rules = prometheus_adapter.read_rules(documents[0], own, notes)
    faults += [replace(one, path=f"{documents[0].place}: {one.path}".rstrip(": ")) for one in own]
    return rules


def _pair(document: Document, rules: Rules | None, part: SettingsPart, style: Style) -> Migrated:
    root = Fields(document.data, "", [], Notes())
    draft = _draft(document, root, rules, part)
    if root.faults or draft is None:
        raise MigrationError([replace(one, path=f"{document.place}: {one.path}".rstrip(": ")) for one in root.faults])
    return write(draft, style)


def _draft(document: Document, root: Fields, rules: Rules | None, part: SettingsPart) -> Draft | None:
    version = document.data.get("apiVersion")
    group = version.rpartition("/")[0] if isinstance(version, str) else ""
    match (group, document.kind):
        case (watermark_pod_autoscaler.API_GROUP, watermark_pod_autoscaler.KIND):
            return watermark_pod_autoscaler.read(document.place, root, part)
        case (keda.API_GROUP, keda.KIND):
            return keda.read(document.place, root, part)
        case ("autoscaling", native_hpa.KIND):
            return _hpa(document, root, rules, part)
        case _:
            shown = f"{version} {document.kind}".strip() if isinstance(version, str) else document.kind
            root.fault("kind", shown or None, f"cannot be migrated; known are {_KNOWN}")
            return None


def _hpa(document: Document, root: Fields, rules: Rules | None, part: SettingsPart) -> Draft:
    metadata = document.data.get("metadata")
    annotations = metadata.get("annotations") if isinstance(metadata, dict) else None
    names = annotations if isinstance(annotations, dict) else {}
    if rules is None or any(str(key).startswith(metrics_adapter.PREFIX) for key in names):
        source = f"{native_hpa.KIND} ({metrics_adapter.NAME})"
        return native_hpa.read(
            document.place, root, lambda given, fields: metrics_adapter.Annotations(given, fields, part), source
        )
    source = f"{native_hpa.KIND} ({prometheus_adapter.NAME})"
    return native_hpa.read(
        document.place, root, lambda given, fields: prometheus_adapter.RulesResolver(rules, given, fields, part), source
    )


def _twice(pairs: Sequence[Migrated]) -> list[Fault]:
    """Two pairs of one name would overwrite each other; two of one target would scale it both."""
    seen: dict[tuple[str, ...], str] = {}
    faults = []
    for pair in pairs:
        target = pair.hpa["spec"]["scaleTargetRef"]
        for key, what in (
            (("name", pair.namespace, pair.name), f"{pair.namespace}/{pair.name}".lstrip("/")),
            (("target", pair.namespace, target["kind"], target["name"]), f"{target['kind']} {target['name']}"),
        ):
            first = seen.setdefault(key, pair.place)
            if first != pair.place:
                faults.append(Fault(pair.place, what, f"is already that of {first}; migrate one of them"))
    return faults
