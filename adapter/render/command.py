"""The command `render`: from the text of a file to manifests, as YAML with remarks or as JSON."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from adapter.load.spec import Bounds, Policy
from adapter.migrate import output
from adapter.migrate.original import KNOWN_VERSIONS, MigrationError, read_objects
from adapter.policy.hpa import CrossVersionReference
from adapter.policy.linking import reference_faults
from adapter.policy.objects import PolicyError
from adapter.policy.watermark_policy import KIND, parse_policy
from adapter.render import from_hpa, from_policy
from adapter.runtime.faults import Fault, FaultyDocument, first_faults

_TITLE = "the policies cannot be rendered"


class RenderError(FaultyDocument):
    """There is no HPA for a policy, or the arguments do not fit the input; `faults` say why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What the arguments say about the HPA of a policy; None: the default."""

    target: str | None = None
    minimum: int | None = None
    maximum: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Rendered:
    """Manifests that belong together, and a sentence for each thing to know about them."""

    heading: str
    objects: Sequence[dict[str, object]]
    remarks: tuple[str, ...] = ()


def from_policies(file: str, text: str, wanted: Wanted) -> list[Rendered]:
    """The HPA of each policy in a text. Raises MigrationError for what is no object, RenderError for the rest."""
    documents = [one for one in read_objects([(file, text)]) if one.kind == KIND]
    if not documents:
        raise RenderError([Fault(file, None, f"has no {KIND}; give the file of one, or --from-hpa")], _TITLE)
    if len(documents) > 1 and wanted.target is not None:
        advice = f"is for one policy, and {file} has {len(documents)}; give them one by one"
        raise RenderError([Fault("--target", wanted.target, advice)], _TITLE)
    rendered, faults = list[Rendered](), list[Fault]()
    for document in documents:
        try:
            policy = parse_policy(document.data)
            given = document.data["metadata"].get("namespace")
            rendered.append(_hpa_of(policy, {"namespace": given} if given else {}, wanted))
        except (PolicyError, RenderError) as error:
            faults += [replace(one, path=f"{document.place}: {one.path}".rstrip(": ")) for one in error.faults]
    if faults:
        raise RenderError(first_faults(faults), _TITLE)
    return rendered


def _hpa_of(policy: Policy, namespace: dict[str, str], wanted: Wanted) -> Rendered:
    metadata = {"name": policy.hpa, **namespace}
    manifest = from_policy.hpa_of(policy, metadata, _target(policy, wanted), _bounds(policy, wanted))
    remarks = tuple(from_policy.remarks(policy, manifest))
    return Rendered(heading=f"The HPA of {KIND} {policy.name}", objects=[manifest], remarks=remarks)


def _target(policy: Policy, wanted: Wanted) -> CrossVersionReference:
    """The target of the argument. Raises RenderError."""
    version, _, reference = (wanted.target or f"Deployment/{policy.hpa}").rpartition("/")
    version, kind = version.rpartition("/")[::2] if "/" in version else ("", version)
    version = version or KNOWN_VERSIONS.get(kind, "")
    faults = list(reference_faults(version, kind, reference)) if version else []
    if not version:
        faults = [Fault("", None, "write VERSION/KIND/NAME, such as apps/v1/Deployment/web")]
    if faults:
        raise RenderError([Fault("--target", wanted.target, str(replace(one, path=""))) for one in faults])
    return CrossVersionReference(version, kind, reference)


def _bounds(policy: Policy, wanted: Wanted) -> Bounds:
    """The bounds of the arguments, else of the policy. Raises RenderError."""
    least = wanted.minimum or from_policy.fewest_replicas(policy)
    most = wanted.maximum or from_policy.most_replicas(policy)
    if most is None:
        raise RenderError([Fault("--max-replicas", None, "is required: the policy itself names no maximum")])
    if least > most:
        why = "" if wanted.minimum else ", the least with which this policy is steady"
        advice = f"must be at least minReplicas ({least}{why}); raise it, or give --min-replicas"
        raise RenderError([Fault("--max-replicas", most, advice)])
    return Bounds(minimum=least, maximum=most)


def from_hpas(file: str, text: str, wanted: Wanted) -> list[Rendered]:
    """The policy and the HPA of each HPA in a text. Raises MigrationError; RenderError for arguments of policies."""
    for option, value in (
        ("--target", wanted.target), ("--min-replicas", wanted.minimum), ("--max-replicas", wanted.maximum),
    ):  # fmt: skip
        if value is not None:
            raise RenderError(
                [Fault(option, value, "is for policies: with --from-hpa the HPA says it")], from_hpa.TITLE
            )
    rendered, faults = list[Rendered](), list[Fault]()
    for document in read_objects([(file, text)]):
        try:
            pair = from_hpa.pair_of(document)
        except MigrationError as error:
            faults += error.faults
        else:
            heading = f"In the place of {pair.source} {pair.name}"
            rendered.append(
                Rendered(heading=heading, objects=[{**pair.policy}, {**pair.hpa}], remarks=tuple(map(str, pair.notes)))
            )
    if faults:
        raise MigrationError(first_faults(faults), from_hpa.TITLE)
    return rendered


def as_yaml(rendered: Iterable[Rendered]) -> str:
    """The manifests as documents, each group below its remarks as comments."""
    groups = []
    for one in rendered:
        lines = list(output.comments((one.heading, *one.remarks)))
        documents = "\n---\n".join(output.dump(manifest) for manifest in one.objects)
        groups.append("\n".join([*lines, documents]))
    return "\n---\n".join(groups) + "\n"


def as_json(rendered: Iterable[Rendered]) -> str:
    """The groups as JSON: `objects` and `remarks`."""
    data = [{"objects": list(one.objects), "remarks": list(one.remarks)} for one in rendered]
    return json.dumps({"rendered": data}, indent=2) + "\n"
