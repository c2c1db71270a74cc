"""Policies made up by hypothesis, all of them right."""

from typing import Any

from hypothesis import strategies as st

from adapter.load.spec import Algorithm, Mode

NAMES = st.from_regex(r"[a-z0-9]([-a-z0-9_]{0,10}[a-z0-9])?", fullmatch=True).filter(lambda name: name != "pods")
SECONDS = st.integers(0, 86_400)
PERCENTS = st.integers(100, 1000).map(lambda percent: f"{percent}%")
REGISTRIES = st.fixed_dictionaries(
    {"name": st.just("r"), "service": st.text("abc.", min_size=1)},
    optional={
        "registrationGraceSeconds": SECONDS,
        "absenceConfirmationSeconds": SECONDS,
        "treatUnhealthyAsOut": st.booleans(),
        "anyInstanceOut": st.booleans(),
        "match": st.sampled_from(["IPPort", "IP"]),
        "port": st.integers(1, 65535),
        "group": st.just("g"),
    },
)
OPTIONS: dict[str, st.SearchStrategy[Any]] = {
    "hpa": NAMES,
    "mode": st.sampled_from(Mode).map(str),
    "hpaConfiguration": st.sampled_from(["Report", "Manage"]),
    "tolerance": st.integers(0, 99).map(lambda percent: f"{percent}%"),
    "minServingPercent": st.integers(0, 100),
    "acceptZeroUsage": st.booleans() | st.none(),
    "saturationFactor": PERCENTS,
    "replicaMultiple": st.integers(1, 1000),
    "fastScaleUp": st.booleans(),
    "notify": st.lists(st.sampled_from(["oncall", "team", "mail"]), unique=True, min_size=1),
    "registry": REGISTRIES,
    "cooldown": st.fixed_dictionaries({}, optional={"scaleUpSeconds": SECONDS, "scaleDownSeconds": SECONDS}),
}


@st.composite
def metrics(draw: st.DrawFn, name: str) -> dict[str, Any]:
    of, named = draw(st.sampled_from([None, "Limit", "Request"])), draw(st.lists(st.sampled_from("abc"), unique=True))
    share = {"relativeTo": of, "containers": named}
    if draw(st.booleans()):
        source: dict[str, Any] = {"resource": {"name": draw(st.sampled_from(["cpu", "memory"])), **share}}
    else:
        source = {"query": {"name": "q"} | (share | {"resource": "memory"} if of else {})}
    suffix = draw(st.sampled_from(["m", "%"] if of else ["", "m", "k", "Mi", "e2", "n"]))
    marks = draw(st.lists(st.integers(1, 1000), min_size=1, max_size=2, unique=True))
    keys = ["lowWatermark", "highWatermark"]
    keys = keys if len(marks) == 2 else [draw(st.sampled_from(keys))]
    written = [mark if not suffix and draw(st.booleans()) else f"{mark}{suffix}" for mark in sorted(marks)]
    return {"name": name, **source, **dict(zip(keys, written, strict=True))}


@st.composite
def specs(draw: st.DrawFn) -> dict[str, Any]:
    """A right spec."""
    read = [draw(metrics(name)) for name in draw(st.lists(NAMES, min_size=1, max_size=4, unique=True))]
    is_share = any("relativeTo" in str(one) and "'relativeTo': None" not in str(one) for one in read)
    marks = [mark for mark in ("High", "Low") if any(f"{mark.lower()}Watermark" in one for one in read)]
    more = {
        "algorithm": st.just("Average") if is_share else st.sampled_from(Algorithm).map(str),
        "convergeTowards": st.sampled_from(marks),
    }
    return {"metrics": read, **draw(st.fixed_dictionaries({}, optional={**OPTIONS, **more}))}
