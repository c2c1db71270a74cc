"""`python -m tools.checks`: manifests and documents that the code can vouch for.

`--write` renews those that are made from code and from stored results.

Each check yields sentences about what is wrong; none is good news.
"""

import argparse
import ast
import os
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import yaml

from adapter.cli import COMMANDS
from adapter.policy.hpa import parse_hpa
from adapter.policy.linking import MAX_SELECTOR_REQUIREMENTS
from adapter.policy.watermark_policy import KIND, parse_policy
from adapter.runtime.faults import FaultyDocument
from adapter.settings import Settings, parse_settings
from adapter.telemetry.metrics import Metrics
from monitoring.alerts import rules
from tests.manifests.rendering import MANIFESTS, Object, documents, identity, render
from tools import chart_templates, chart_values, reference

ROOT = Path(__file__).parents[1]
_OVERLAYS = ("overlays/default", "overlays/external-metrics", "examples/overlay", "examples/overlay-minimal")
RENDERED = [MANIFESTS / folder for folder in ("base", *_OVERLAYS)]
EXAMPLES = sorted((MANIFESTS / "examples").glob("*.yaml"))
_LINK = re.compile(r"\]\((?!https?:|mailto:)([^)#\s]*)(?:#([^)\s]+))?\)")
_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
_METRIC = re.compile(r"\beffective_load_[a-z0-9_]+")
_SUFFIX = re.compile(r"_(bucket|sum|count)$")
_TEST = re.compile(r"`([\w/]+\.py)::(\w+)`")
_LOGGED = re.compile(r"_log\.(?:debug|info|warning|error|exception)\(\s*\"([^\"]+)\"")
_CONSTANT = re.compile(r"\"([a-z]+(?:_[a-z0-9]+)+)\"")
_SNAKE = re.compile(r"[a-z]+(?:_[a-z0-9]+)+")
_EVENT_ROW = re.compile(r"^\| `(\w+)` \| (?:debug|info|warning|error) \|", re.MULTILINE)
_IN_LOG = re.compile(r"`?([a-z]+(?:_[a-z0-9]+)+)`? in (?:its|the (?:\w+'s )?) ?log")
_GREP = re.compile(r"grep (?:-E )?'?((?:[a-z]+_)+[a-z_|]+)")
_OUR_COMMAND = re.compile(r"(?<!-n )(?<=[`/ ])effective-load ([a-z]+)(?= (?:--|[A-Z`])|`)")
_HABIT = re.compile(
    r"(?i)\b(?:told|tells|nobody|whoever|anew|mend(?:s|ed)?|swallow(?:s|ed)?|lea(?:ve|ves|ving) away)\b"
    r"|(?<!there )\bis (?:no|none)\b(?! longer)",
)
"""Words that cost a second reading; CONTRIBUTING.md has plain ones in their place."""
EVENTS = ROOT / "docs" / "logs.md"
LIMITS = (
    ("docs/api.md", MAX_SELECTOR_REQUIREMENTS, r"(\d+) requirements"),
    ("CHANGELOG.md", MAX_SELECTOR_REQUIREMENTS, r"selector has (\d+) requirements"),
)
"""A document, the code's value, and where the document states it."""
TROUBLESHOOTING = ROOT / "docs" / "troubleshooting.md"
FOREIGN = re.compile(
    r"no (?:custom metrics API|known available|matches for kind)|the server is currently|x509|Too many|Got more|kubectl"
    r"|.*(?:is forbidden|cannot watch)"
)
"""Symptoms that Kubernetes or a library words."""
REGISTRIES = ROOT / "docs" / "registries.md"
SECURITY = ROOT / "docs" / "security.md"
MADE = {**reference.FILES, **chart_templates.files(), **chart_values.files()}
"""What makes each file that is made from code, by its path."""
_SKIPPED = {"site"}


def made_from_code() -> Iterator[str]:
    """Reference documents are what the code says now."""
    for path, make in MADE.items():
        if not path.is_file() or path.read_text(encoding="utf-8") != make():
            yield f"{path.relative_to(ROOT)} is not what the code says; run `python -m tools.checks --write`"


def objects() -> Iterator[str]:
    """Settings, policies and HPAs have no fault, and HPAs follow policies; a test holds the schemas of all kinds."""
    sources = [(folder, render(folder)) for folder in RENDERED] + [(file, documents(file)) for file in EXAMPLES]
    for source, item in ((source, item) for source, items in sources for item in items):
        yield from (f"{source.relative_to(ROOT)}: {'/'.join(identity(item))}: {said}" for said in _object_faults(item))


def _object_faults(item: Object) -> Iterator[str]:
    try:
        if item["kind"] == KIND:
            parse_policy(item)
        elif item["kind"] == "HorizontalPodAutoscaler":
            hpa = parse_hpa(item)
            if not hpa.asks_for(hpa.name):
                yield "does not ask for the policy of its name"
            if (hpa.scale_up.tolerance, hpa.scale_down.tolerance) != (0, 0):
                yield "has a tolerance of its own"
        elif item["kind"] == "ConfigMap" and "settings.yaml" in item.get("data", {}):
            parse_settings(item["data"]["settings.yaml"])
    except FaultyDocument as error:
        yield str(error)


def wiring() -> Iterator[str]:
    """Names that must be the same in several objects are."""
    for folder in RENDERED:
        found = {identity(item): item for item in render(folder)}
        for sentence in (*wiring_faults(found), *companion_faults(found)):
            yield f"{folder.relative_to(ROOT)}: {sentence}"


def metric_names() -> Iterator[str]:
    """Documents, rules and dashboards name no metric that does not exist."""
    known = {name for name, *_ in Metrics().names()}
    for path in _texts(".md", ".yaml", ".json"):
        for name in sorted(set(_METRIC.findall(path.read_text(encoding="utf-8")))):
            if not known & {name, _SUFFIX.sub("", name)}:
                yield f"{path.relative_to(ROOT)} names {name}, which does not exist"


def log_events() -> Iterator[str]:
    """docs/logs.md has a row for each event, and documents and remedies name no event that is not logged."""
    sources = {path: path.read_text(encoding="utf-8") for path in sorted((ROOT / "adapter").rglob("*.py"))}
    logged = {name for text in sources.values() for name in _LOGGED.findall(text)}
    known = {name for text in sources.values() for name in _CONSTANT.findall(text)}
    rows = set(_EVENT_ROW.findall(EVENTS.read_text(encoding="utf-8")))
    for name in sorted(logged - rows):
        wrong = "" if _SNAKE.fullmatch(name) else ", and is not in snake_case"
        yield f"docs/logs.md has no row for the event {name}{wrong}"
    yield from (f"docs/logs.md has a row for {name}, which is not logged" for name in sorted(rows - known))
    for path, text in (*sources.items(), *((path, path.read_text(encoding="utf-8")) for path in _texts(".md"))):
        named = [*_IN_LOG.findall(text), *(name for one in _GREP.findall(text) for name in one.split("|"))]
        for name in sorted({name for name in named if _SNAKE.fullmatch(name)} - rows):
            yield f"{path.relative_to(ROOT)} names the log event {name}, which does not exist"


def commands() -> Iterator[str]:
    """Documents, alerts and remedies name no command of ours that does not exist."""
    known = {command.name for command in COMMANDS}
    for path in (*_texts(".md", ".yaml"), *sorted((ROOT / "adapter").rglob("*.py"))):
        for name in sorted(set(_OUR_COMMAND.findall(path.read_text(encoding="utf-8"))) - known):
            yield f"{path.relative_to(ROOT)} names the command effective-load {name}, which does not exist"


def options() -> Iterator[str]:
    """Documents and remedies give our commands no option that they do not have."""
    known: dict[str, set[str]] = {}
    for command in COMMANDS:
        command.add(parser := argparse.ArgumentParser())
        known[command.name] = {option for action in parser._actions for option in action.option_strings}
    for path in (*_texts(".md", ".yaml"), *sorted((ROOT / "adapter").rglob("*.py"))):
        for name, rest in re.findall(
            r"effective-load ([a-z]+)((?:[^`|;.\n]|\.(?=\S))*)", path.read_text(encoding="utf-8")
        ):
            given = set(re.findall(r"(?<!\S)--[a-z][a-z-]*", rest)) if name in known else set()
            for option in sorted(given - known.get(name, set())):
                yield f"{path.relative_to(ROOT)} gives effective-load {name} {option}, which does not exist"


def alerts() -> Iterator[str]:
    """Documents name no alert that does not exist."""
    known = {rule["alert"] for rule in rules()}
    for path in _texts(".md", ".yaml"):
        for name in sorted(set(re.findall(r"\bEffectiveLoad[A-Z]\w+", path.read_text(encoding="utf-8"))) - known):
            yield f"{path.relative_to(ROOT)} names the alert {name}, which does not exist"


def files() -> Iterator[str]:
    """Documents name no file of the repository, or of the package, that does not exist."""
    bases = (ROOT, ROOT / "adapter")
    folders = {path.name for base in bases for path in base.iterdir() if path.is_dir() and path.name.isalpha()}
    named = re.compile(rf"(?<![\w/.-])(?:{'|'.join(sorted(folders))})/[\w./-]++(?![*:])")
    for path in _texts(".md"):
        for name in sorted({one.rstrip(".") for one in named.findall(path.read_text(encoding="utf-8"))}):
            if not re.search(r"NAME|mine", name) and not any((base / name).exists() for base in bases):
                yield f"{path.relative_to(ROOT)} names {name}, which does not exist"


def words() -> Iterator[str]:
    """Documents, field texts, helps and errors use none of the words of `_HABIT`; the table that explains them may."""
    texts = {path: path.read_text(encoding="utf-8") for path in _texts(".md") if path.name != "CONTRIBUTING.md"}
    texts |= {path: path.read_text(encoding="utf-8") for path in sorted((MANIFESTS / "crd").glob("*.yaml"))}
    texts |= {path: "\n".join(_strings(path)) for path in sorted((ROOT / "adapter").rglob("*.py"))}
    for path, text in texts.items():
        for line in text.splitlines():
            if found := _HABIT.search(line):
                yield f"{path.relative_to(ROOT)} says {found[0]!r} in {' '.join(line.split())[:100]!r}"


def _strings(path: Path) -> Iterator[str]:
    """The strings of a module that are no docstrings."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    docs = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docs:
            yield node.value


def symptoms() -> Iterator[str]:
    """Sentences that docs/troubleshooting.md quotes are in the code: three words in a row of each part."""
    said = _words(" ".join(text for path in (ROOT / "adapter").rglob("*.py") for text in _strings(path)))
    for row in re.findall(r"^\| (.+?) \| ", TROUBLESHOOTING.read_text(encoding="utf-8"), re.MULTILINE):
        for quoted in (one for one in re.findall(r"`([^`]+)`", row) if not FOREIGN.match(one)):
            for part in (_words(one).split() for one in quoted.split("…")):
                runs = [" ".join(part[at : at + 3]) for at in range(len(part) - 2)]
                if runs and not any(run in said for run in runs):
                    yield f"docs/troubleshooting.md quotes {quoted!r}, which the code does not say"


def _words(text: str) -> str:
    return " ".join(re.findall(r"[\w./-]+", text))


def limits() -> Iterator[str]:
    """Limits that documents state are those of the code."""
    for name, value, pattern in LIMITS:
        stated = re.findall(pattern, (ROOT / name).read_text(encoding="utf-8"))
        if not stated or {int(one.replace(",", "")) for one in stated} != {value}:
            yield f"{name} states {' and '.join(stated) or 'no limit'} for {pattern!r}, and the code has {value:,}"


def links() -> Iterator[str]:
    """Links within the repository lead somewhere, to a heading where they name one."""
    for path in _texts(".md"):
        for target, heading in _LINK.findall(path.read_text(encoding="utf-8")):
            there = path.parent / target if target else path
            if not there.exists() or (heading and heading not in anchors(there.read_text(encoding="utf-8"))):
                yield f"{path.relative_to(ROOT)} links to {target}{heading and '#'}{heading}, which does not exist"


def anchors(text: str) -> set[str]:
    """The names by which a page's headings are linked to."""
    return {re.sub(r"[^\w\- ]", "", heading).strip().lower().replace(" ", "-") for heading in _HEADING.findall(text)}


def named_tests() -> Iterator[str]:
    """Tests that documents name are there, and each row of a table with a column for tests names one."""
    for path in _texts(".md"):
        for file, name in _TEST.findall(path.read_text(encoding="utf-8")):
            found = ROOT / "tests" / file
            if not found.is_file() or not re.search(rf"\bdef {name}\(", found.read_text(encoding="utf-8")):
                yield f"{path.relative_to(ROOT)} names {file}::{name}, which does not exist; name what holds it now"
    for path in (REGISTRIES, SECURITY):
        yield from (f"docs/{path.name}: no test in: {row}" for row in rows_without_test(path.read_text("utf-8")))


def rooms() -> Iterator[str]:
    """docs/architecture.md draws every room and module of the package, and none that is not there."""
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    (drawn,) = re.findall(r"```\nadapter/\n(.*?)```", page, re.DOTALL)
    there = {path.name + "/" * path.is_dir() for path in (ROOT / "adapter").glob("[!_]*[!_]")}
    named = set(re.findall(r"^  (\S+)", drawn, re.MULTILINE))
    for name in sorted(named ^ {one for one in there if not one.startswith("settings_") and one != "py.typed"}):
        yield f"docs/architecture.md draws adapter/{name} and it is not there, or the other way round"


def rows_without_test(text: str) -> Iterator[str]:
    """The rows of tables whose last column is for tests, but names none."""
    of_tests = False
    for line in text.splitlines():
        if not line.startswith("|"):
            of_tests = False
        elif re.search(r"\| tests? \|$", line):
            of_tests = True
        elif of_tests and not line.startswith("|---") and not _TEST.search(line.rsplit("|", 2)[1]):
            yield line


CHECKS: tuple[Callable[[], Iterator[str]], ...] = (
    made_from_code,
    objects,
    wiring,
    metric_names,
    log_events,
    commands,
    options,
    alerts,
    files,
    limits,
    symptoms,
    words,
    links,
    named_tests,
    rooms,
)


def wiring_faults(found: dict[tuple[str, str, str], Object]) -> Iterator[str]:
    """What does not fit together in one rendering."""
    settings = _settings(found)
    deployment = found["Deployment", "effective-load", "effective-load"]
    service = found["Service", settings.server.tls.namespace, settings.server.tls.service]
    container = _container(deployment)
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    if ports != {"https": settings.server.port, "telemetry": settings.telemetry.port}:
        yield f"the container's ports {ports} are not those of the settings"
    if ("Secret", settings.server.tls.namespace, settings.server.tls.secret) not in found:
        yield f"there is no Secret {settings.server.tls.secret}, and the server may not create one"
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    if service["spec"]["selector"].items() - labels.items():
        yield "the Service does not select the Deployment's pods"
    versions = {item["metadata"]["name"] for (kind, *_), item in found.items() if kind == "APIService"}
    if ("v1beta1.external.metrics.k8s.io" in versions) is not settings.server.external_metrics:
        yield "the settings and the APIServices disagree about external metrics"
    if (writable := _writable(found, "apiservices")) != versions:
        yield f"the server may write the APIServices {sorted(writable)}, and there are {sorted(versions)}"
    version = re.search(r'^version = "(.+)"', (ROOT / "pyproject.toml").read_text(encoding="utf-8"), re.MULTILINE)
    if version and not container["image"].endswith(f":{version[1]}"):
        yield f"the image {container['image']} is not of version {version[1]}"


def companion_faults(found: dict[tuple[str, str, str], Object]) -> Iterator[str]:
    """What of the companion, where it is rendered, does not fit the settings and the server's Deployment."""
    deployment = found.get(("Deployment", "effective-load", "effective-load-companion"))
    if deployment is None:
        return
    settings = _settings(found)
    container, server = _container(deployment), _container(found["Deployment", "effective-load", "effective-load"])
    if container["image"] != server["image"]:
        yield f"the companion's image {container['image']} is not the server's"
    if {port["name"]: port["containerPort"] for port in container["ports"]} != {"telemetry": settings.telemetry.port}:
        yield "the companion's port is not that of the settings"
    lease = settings.companion.lease
    if ("Lease", settings.companion.namespace, lease) not in found:
        yield f"there is no Lease {lease}, and the companion may not create one"
    if _writable(found, "leases") != {lease}:
        yield f"the companion may write other Leases than {lease}"


def _settings(found: dict[tuple[str, str, str], Object]) -> Settings:
    return parse_settings(found["ConfigMap", "effective-load", "effective-load-settings"]["data"]["settings.yaml"])


def _container(deployment: Object) -> dict[str, Any]:
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    return dict(container)


def _writable(found: dict[tuple[str, str, str], Object], resource: str) -> set[str]:
    """The names of objects of a kind for which there is a rule; `*` stands for all."""
    rules = [rule for item in found.values() for rule in item.get("rules", ())]
    named = [rule.get("resourceNames", ["*"]) for rule in rules if resource in rule.get("resources", ())]
    return {name for names in named for name in names}


def _texts(*endings: str) -> Iterator[Path]:
    """The project's files: what tools keep there in folders of their own is far more, and is not looked at."""
    for folder, folders, files in os.walk(ROOT):
        folders[:] = sorted(name for name in folders if name == ".github" or (name[0] != "." and name not in _SKIPPED))
        yield from (Path(folder, name) for name in sorted(files) if name.endswith(endings))


def main(arguments: list[str] | None = None) -> int:
    """Run every check; the status is 1 if anything is wrong."""
    parser = argparse.ArgumentParser(prog="python -m tools.checks", description=__doc__)
    parser.add_argument("--write", action="store_true", help="renew what is made from code and from stored results")
    if parser.parse_args(arguments).write:
        for path, make in MADE.items():
            if not path.is_file() or path.read_text(encoding="utf-8") != make():
                path.write_text(make(), encoding="utf-8")
                print(f"renewed {path.relative_to(ROOT)}")
    sentences = [sentence for check in CHECKS for sentence in check()]
    for sentence in sentences:
        print(sentence, file=sys.stderr)
    if not sentences:
        print(f"{len(CHECKS)} checks of manifests and documents passed")
    return 1 if sentences else 0


if __name__ == "__main__":
    try:
        raise SystemExit(main())
    except yaml.YAMLError as fault:
        raise SystemExit(f"a manifest is no YAML: {fault}") from None
