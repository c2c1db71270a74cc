"""Every field of an original has an effect on what is written, or is named by a note or a refusal."""

import re
from collections.abc import Iterator
from typing import Any

from adapter.runtime.faults import path_of
from tests.fuzz.spoil import places
from tests.migrate import kit

Path = tuple[str | int, ...]
CONFIG = ("data", "config.yaml")
MEANINGLESS = {
    r"metadata\.(uid|resourceVersion|generation|creationTimestamp|managedFields|selfLink|finalizers)\b.*":
        "of the stored object, not of what it asks for",
    r"metadata\.ownerReferences\[\](\.apiVersion|\.uid|\.controller)?": "a note names the owner by kind and name",
    r"metadata\.annotations\.kubectl\.kubernetes\.io/last-applied-configuration": "a copy of the object",
    r"metadata\.annotations\.autoscaling\.keda\.sh/force-activation": "never 0 pods: so the pair does it in any case",
    r"metadata\.annotations\.(scaledobject|validations)\.keda\.sh/.*": "how KEDA gets its own HPA, which goes",
    r"rules\[\]\.resources\.namespaced": "prometheus-adapter reads it only in externalRules",
    r"spec\.metrics\[Pods\]\.pods\.target\.type": "the API server admits only AverageValue",
}  # fmt: skip
"""Fields that may be dropped, each with the reason."""


def fields_of(one: kit.Object) -> Iterator[tuple[Path, str, Any]]:
    """All that is read of an object: each path, its name without indices, and the value. Of a ConfigMap: the rules."""
    for path in places(one):
        if path[:2] == CONFIG if one["kind"] == "ConfigMap" else path[0] in {"metadata", "spec"}:
            name, value = "", one
            for step in path:
                value = value[step]
                kind = value.get("type", "") if isinstance(value, dict) else ""
                name += f"[{kind}]" if isinstance(step, int) else f".{step}"
            name = name.removeprefix(".").removeprefix(f"{'.'.join(CONFIG)}.")
            if not any(re.fullmatch(known, name) for known in MEANINGLESS):
                yield path, name, value


def said(objects: list[kit.Object], number: int, new: kit.Object) -> str:
    """All that a migration with another object in this place says."""
    migration = kit.migrated(*kit.with_texts([*objects[:number], new, *objects[number + 1 :]]))
    found = [*migration.notes, *(note for pair in migration.pairs for note in pair.notes), *migration.refused]
    return "\n".join(map(str, [migration.settings, *(pair.objects for pair in migration.pairs), *found]))


def is_named(path: Path, text: str) -> bool:
    """Whether a note or a refusal names the field, or that it is left out or kept with all around it."""
    inside = path[2:] if path[:2] == CONFIG else path
    whole = str(path[-1]) if "/" in str(path[-1]) else path_of(inside)
    around = "|".join(re.escape(path_of(inside[:end])) for end in range(1, len(inside) + 1))
    return bool(
        re.search(rf"(?<![\w./]){re.escape(whole)}(?![\w./\[])", text)
        # Of annotations each has to be named.
        or (
            path[0] != "metadata"
            and re.search(rf"^(Lost: |Kept: |.* not migrated: )(\S+\.yaml: )?({around}):", text, re.MULTILINE)
        )
    )


def other(value: Any) -> Any:
    """Another value that the API server would admit, as far as that is known without the field."""
    if isinstance(value, int):
        return not value if isinstance(value, bool) else value + 1
    flipped = {"true": "false", "false": "true"}.get(value)
    return flipped or (f"1{value}" if value[:1].isdigit() else f"{value}x")


def test_every_field_of_an_original_has_an_effect_or_is_named() -> None:
    heard = dict[str, bool]()  # of a field in several originals one is enough
    for objects in kit.ORIGINALS:
        before = said(objects, 0, objects[0])
        for number, one in enumerate(objects):
            for path, name, value in fields_of(one):
                if isinstance(value, dict | list):
                    continue
                for what, to in (("removed", None), ("changed", other(value))):
                    key = f"{one['kind']}: {name} {what}"
                    if not heard.get(key):
                        after = said(objects, number, kit.changed(one, *path, to=to))
                        heard[key] = after != before or is_named(path, before)
    assert len(heard) > 300
    assert not (silent := [key for key in heard if not heard[key]]), "\n".join(["dropped in silence:", *silent])


def test_an_unknown_field_in_any_mapping_is_named_or_refused() -> None:
    silent = []
    for objects in kit.ORIGINALS:
        for number, one in enumerate(objects):
            for path, _, value in fields_of(one):
                if isinstance(value, dict):
                    text = said(objects, number, kit.changed(one, *path, "unheardOf", to="x"))
                    if not ("unheardOf" in text or "is not migrated" in text or is_named(path, text)):
                        silent.append(f"{one['kind']}: {path_of(path)}")
    assert not silent, "\n".join(["an unknown field is dropped in silence in:", *silent])
