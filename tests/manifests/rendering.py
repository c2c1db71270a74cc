"""Renders the manifests like `kubectl kustomize`, for the features they use: resources, components, images, merge
patches of the object that they name or of those that a target selects, replacements, and generators of ConfigMaps. A
test compares it with the real one.
"""

import copy
import functools
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

Object = dict[str, Any]

MANIFESTS = Path(__file__).parents[2] / "manifests"
_LIST_KEYS = {"containers": "name", "volumes": "name", "volumeMounts": "mountPath"}
_KNOWN = {"apiVersion", "kind", "resources", "components", "images", "patches", "configurations", "replacements"}
_GENERATORS = {"configMapGenerator", "generatorOptions"}


class RenderingError(Exception):
    """The kustomization uses an unsupported feature."""


def render(folder: Path) -> list[Object]:
    """The objects of a kustomization folder."""
    return _over([], folder)


def render_with(base: Path, components: Iterable[str] = (), patches: Iterable[Object] = ()) -> list[Object]:
    """The objects of an overlay: a folder, components by name, and patches of the objects that they name."""
    objects = render(base)
    for name in components:
        objects = _over(objects, MANIFESTS / "components" / name)
    for change in patches:
        objects = _patched(objects, change, {})
    return objects


def documents(file: Path) -> list[Object]:
    """The objects in a file."""
    return [one for one in yaml.load_all(file.read_text(encoding="utf-8"), Loader=yaml.CSafeLoader) if one is not None]


def _over(objects: list[Object], folder: Path) -> list[Object]:
    kustomization = yaml.safe_load((folder / "kustomization.yaml").read_text(encoding="utf-8"))
    if unknown := kustomization.keys() - _KNOWN - _GENERATORS:
        raise RenderingError(f"{folder} uses {sorted(unknown)}")
    objects = [*objects]
    for name in kustomization.get("resources", ()):
        objects += render(folder / name) if (folder / name).is_dir() else documents(folder / name)
    objects += _config_maps(folder, kustomization)
    for name in kustomization.get("components", ()):
        objects = _over(objects, folder / name)
    for patch in kustomization.get("patches", ()):
        for change in documents(folder / patch["path"]):
            objects = _patched(objects, change, patch.get("target", {}))
    for replacement in kustomization.get("replacements", ()):
        objects = _replaced(objects, replacement["source"], replacement["targets"])
    images = {one["name"]: f"{one['newName']}:{one['newTag']}" for one in kustomization.get("images", ())}
    return [_with_images(item, images) for item in objects]


def _config_maps(folder: Path, kustomization: Mapping[str, Any]) -> Iterator[Object]:
    """The generated ConfigMaps, whose names have no hash."""
    options = kustomization.get("generatorOptions", {})
    for one in kustomization.get("configMapGenerator", ()):
        files = dict(pair.split("=") for pair in one["files"])
        yield {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": one["name"], "namespace": one["namespace"], "labels": options["labels"]},
            "data": {key: (folder / file).read_text(encoding="utf-8") for key, file in files.items()},
        }


def _replaced(objects: list[Object], source: Mapping[str, str], targets: Iterable[Mapping[str, Any]]) -> list[Object]:
    """The objects with a field of the source set in all that the targets select."""
    (value,) = [one for one in objects if (one["kind"], one["metadata"]["name"]) == (source["kind"], source["name"])]
    for key in _keys(source["fieldPath"]):
        value = value[key]
    for target in targets:
        for path in target["fieldPaths"]:
            change: Any = value
            for key in reversed(_keys(path)):
                change = {key: change}
            objects = [_merged(one, change) if _selects(target["select"], one) else one for one in objects]
    return objects


def _keys(path: str) -> list[str]:
    """The keys of a field's path; one that has dots itself stands in brackets."""
    return [bracketed or plain for bracketed, plain in re.findall(r"\[([^]]+)\]|([^.\[]+)", path)]


def identity(item: Object) -> tuple[str, str, str]:
    """Kind, namespace and name."""
    return item["kind"], item["metadata"].get("namespace", ""), item["metadata"]["name"]


def grants(objects: Iterable[Object]) -> Iterator[tuple[str, str, Object]]:
    """What the roles among these objects grant: the account, the namespace (empty: all), the rule.

    Of a role of Kubernetes' own only its name is known.
    """
    found = {identity(item): item for item in objects}
    for (kind, namespace, _), item in found.items():
        if kind.endswith("RoleBinding"):
            role = item["roleRef"]
            known = found.get((role["kind"], namespace, role["name"]), {"rules": [{"role": role["name"]}]})
            yield from ((one["name"], namespace, rule) for one in item["subjects"] for rule in known["rules"])


def _patched(objects: list[Object], change: Object, target: Mapping[str, str]) -> list[Object]:
    """The objects with a patch applied to the one that it names, or to all that the target selects, even if none is."""
    if not target and identity(change) not in map(identity, objects):
        raise RenderingError(f"no {identity(change)} to patch")
    is_meant = functools.partial(_selects, target) if target else lambda one: identity(one) == identity(change)
    if change.get("$patch") == "delete":
        return [one for one in objects if not is_meant(one)]
    if target:  # the name in the patch does not count
        metadata = {key: value for key, value in change.get("metadata", {}).items() if key != "name"}
        change = {key: value for key, value in change.items() if key not in {"apiVersion", "kind"}}
        change |= {"metadata": metadata}
    return [_merged(one, change) if is_meant(one) else one for one in objects]


def _selects(target: Mapping[str, str], item: Object) -> bool:
    """Whether the target's expressions fit kind and name as a whole."""
    if unknown := target.keys() - {"kind", "name"}:
        raise RenderingError(f"a target uses {sorted(unknown)}")
    values = {"kind": item["kind"], "name": item["metadata"]["name"]}
    return all(re.fullmatch(expression, values[key]) for key, expression in target.items())


def _with_images(item: Object, images: dict[str, str]) -> Object:
    """The object with its pods' images replaced; images match by name without the tag."""
    if item["kind"] != "Deployment":
        return item
    item = copy.deepcopy(item)
    for container in item["spec"]["template"]["spec"]["containers"]:
        container["image"] = images.get(container["image"].partition(":")[0], container["image"])
    return item


def _merged(base: Any, change: Any, key: str = "") -> Any:
    if isinstance(base, list) and isinstance(change, list) and key in _LIST_KEYS:
        return _merged_list(base, change, _LIST_KEYS[key])
    if not (isinstance(base, dict) and isinstance(change, dict)):
        return change
    keys = {**base, **change}
    return {key: _merged(base.get(key), change[key], key) if key in change else base[key] for key in keys}


def _merged_list(base: list[Object], change: list[Object], by: str) -> list[Object]:
    """The items merged by their key; new ones come first."""
    known = {item[by] for item in base}
    changes = {item[by]: item for item in change}
    kept = [_merged(item, changes[item[by]]) if item[by] in changes else item for item in base]
    return [*(item for item in change if item[by] not in known), *kept]
