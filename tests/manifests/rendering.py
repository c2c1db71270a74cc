"""Renders the manifests like `kubectl kustomize`, for the features they use: resources, components, images, and merge
patches that name their object. A test compares it with the real one.
"""

import copy
from pathlib import Path
from typing import Any

import yaml

Object = dict[str, Any]

MANIFESTS = Path(__file__).parents[2] / "manifests"
_KNOWN = {"apiVersion", "kind", "resources", "components", "images", "patches"}


class RenderingError(Exception):
    """The kustomization uses an unsupported feature."""


def render(folder: Path) -> list[Object]:
    """The objects of a kustomization folder."""
    return _over([], folder)


def documents(file: Path) -> list[Object]:
    """The objects in a file."""
    return [one for one in yaml.safe_load_all(file.read_text(encoding="utf-8")) if one is not None]


def _over(objects: list[Object], folder: Path) -> list[Object]:
    kustomization = yaml.safe_load((folder / "kustomization.yaml").read_text(encoding="utf-8"))
    if unknown := kustomization.keys() - _KNOWN:
        raise RenderingError(f"{folder} uses {sorted(unknown)}")
    objects = [*objects]
    for name in kustomization.get("resources", ()):
        objects += render(folder / name) if (folder / name).is_dir() else documents(folder / name)
    for name in kustomization.get("components", ()):
        objects = _over(objects, folder / name)
    for patch in kustomization.get("patches", ()):
        for change in documents(folder / patch["path"]):
            objects = _patched(objects, change)
    images = {one["name"]: f"{one['newName']}:{one['newTag']}" for one in kustomization.get("images", ())}
    return [_with_images(item, images) for item in objects]


def identity(item: Object) -> tuple[str, str, str]:
    """Kind, namespace and name."""
    return item["kind"], item["metadata"].get("namespace", ""), item["metadata"]["name"]


def _patched(objects: list[Object], change: Object) -> list[Object]:
    if identity(change) not in map(identity, objects):
        raise RenderingError(f"no {identity(change)} to patch")
    return [_merged(one, change) if identity(one) == identity(change) else one for one in objects]


def _with_images(item: Object, images: dict[str, str]) -> Object:
    """The object with its pods' images replaced; images match by name without the tag."""
    if item["kind"] != "Deployment":
        return item
    item = copy.deepcopy(item)
    for container in item["spec"]["template"]["spec"]["containers"]:
        container["image"] = images.get(container["image"].partition(":")[0], container["image"])
    return item


def _merged(base: Any, change: Any) -> Any:
    if not (isinstance(base, dict) and isinstance(change, dict)):
        return change
    return {key: _merged(base.get(key), change[key]) if key in change else base[key] for key in {**base, **change}}
