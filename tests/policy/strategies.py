"""Policies made up by hypothesis: right ones, with what they must be read as."""

from fractions import Fraction
from typing import Any

from hypothesis import strategies as st

from adapter.load.quantity import NANO
from adapter.load.spec import (
    Algorithm,
    Capacity,
    Metric,
    Mode,
    Query,
    Registry,
)

names = st.from_regex(r"[a-z0-9]([-a-z0-9_]{0,10}[a-z0-9])?", fullmatch=True).filter(lambda name: name != "pods")
containers = st.lists(st.sampled_from(["app", "proxy", "log"]), unique=True, max_size=3)
_ROUTES = st.lists(st.sampled_from(["oncall", "team", "mail"]), unique=True, min_size=1)


@st.composite
def amounts(draw: st.DrawFn) -> tuple[str | int, Fraction]:
    """A quantity as somebody writes it, and what it is in nano-units."""
    whole = draw(st.integers(1, 10**6))
    suffix, unit = draw(
        st.sampled_from(
            [("", 1), ("m", Fraction(1, 1000)), ("k", 1000), ("Mi", 1 << 20), ("e2", 100), ("n", Fraction(1, NANO))]
        )
    )
    value = whole * Fraction(unit) * NANO
    return (whole if not suffix and draw(st.booleans()) else f"{whole}{suffix}"), value


@st.composite
def ratios(draw: st.DrawFn) -> tuple[str | int, Fraction]:
    """A ratio as a percentage or a number, in nano of a ratio."""
    tenths = draw(st.integers(1, 10_000))
    value = Fraction(tenths, 1000)
    text = draw(st.sampled_from([f"{tenths / 10}%", f"{tenths}m", f"{tenths / 1000:.3f}"]))
    return text, value * NANO


@st.composite
def metrics(draw: st.DrawFn, name: str) -> tuple[dict[str, Any], Metric]:
    of = draw(st.sampled_from([None, *Capacity]))
    named = draw(containers)
    document: dict[str, Any] = {"name": name}
    if draw(st.booleans()):
        resource = draw(st.sampled_from(["cpu", "memory"]))
        document["resource"] = {"name": resource, "containers": named, "relativeTo": of and of.value}
        source: dict[str, Any] = {"resource": resource, "containers": tuple(named), "relative_to": of}
    else:
        document["query"] = {"name": "q"} | (
            {"relativeTo": of.value, "resource": "memory", "containers": named} if of else {}
        )
        source = {"query": Query(name="q")}
        if of:
            source |= {"resource": "memory", "containers": tuple(named), "relative_to": of}
    marks = sorted(
        draw(st.lists(ratios() if of else amounts(), min_size=1, max_size=2, unique_by=lambda m: m[1])),
        key=lambda m: m[1],
    )
    keys = (
        ["lowWatermark", "highWatermark"]
        if len(marks) == 2
        else [draw(st.sampled_from(["lowWatermark", "highWatermark"]))]
    )
    document |= {key: mark[0] for key, mark in zip(keys, marks, strict=True)}
    expected = {key.removesuffix("Watermark"): mark[1] for key, mark in zip(keys, marks, strict=True)}
    return document, Metric(name=name, **source, **expected)


@st.composite
def registries(draw: st.DrawFn) -> tuple[dict[str, Any], Registry]:
    given = {
        "service": draw(st.text("abc.", min_size=1)),
        "registrationGraceSeconds": draw(st.integers(0, 86_400)),
        "absenceConfirmationSeconds": draw(st.integers(0, 86_400)),
        "treatUnhealthyAsOut": draw(st.booleans()),
        "anyInstanceOut": draw(st.booleans()),
        "match": draw(st.sampled_from(["IPPort", "IP"])),
    }
    more: dict[str, Any] = draw(
        st.fixed_dictionaries({}, optional={"port": st.integers(1, 65535), "group": st.just("g")})
    )
    return {"name": "r", **given, **more}, Registry(
        name="r",
        service=given["service"],
        registration_grace_seconds=given["registrationGraceSeconds"],
        absence_confirmation_seconds=given["absenceConfirmationSeconds"],
        treat_unhealthy_as_out=given["treatUnhealthyAsOut"],
        any_instance_out=given["anyInstanceOut"],
        match=given["match"],
        port=more.get("port"),
        group=more.get("group", ""),
    )


@st.composite
def specs(draw: st.DrawFn) -> tuple[dict[str, Any], dict[str, Any]]:
    """A right spec, and the attributes of the policy it must become."""
    read = [draw(metrics(name)) for name in draw(st.lists(names, min_size=1, max_size=4, unique=True))]
    document: dict[str, Any] = {"metrics": [one for one, _ in read]}
    expected: dict[str, Any] = {"metrics": tuple(metric for _, metric in read)}

    def maybe(key: str, attribute: str, values: st.SearchStrategy[Any], written: Any = lambda value: value) -> None:
        if draw(st.booleans()):
            expected[attribute] = draw(values)
            document[key] = written(expected[attribute])

    plain = all(metric.relative_to is None for metric in expected["metrics"])
    maybe("hpa", "hpa", names)
    maybe("mode", "mode", st.sampled_from(Mode), str)
    maybe("hpaConfiguration", "hpa_configuration", st.sampled_from(["Report", "Manage"]), str)
    maybe("algorithm", "algorithm", st.sampled_from(Algorithm) if plain else st.just(Algorithm.AVERAGE), str)
    maybe("tolerance", "tolerance", st.integers(0, 99).map(lambda p: Fraction(p, 100)), lambda r: f"{r * 100}%")
    maybe("minServingPercent", "min_serving_percent", st.integers(0, 100))
    maybe("acceptZeroUsage", "accept_zero_usage", st.booleans())
    maybe(
        "saturationFactor",
        "saturation_factor",
        st.integers(100, 1000).map(lambda p: Fraction(p, 100)),
        lambda r: f"{r * 100}%",
    )
    maybe("replicaMultiple", "replica_multiple", st.integers(1, 1000))
    maybe("fastScaleUp", "fast_scale_up", st.booleans())
    maybe("notify", "notify", _ROUTES.map(tuple), list)
    has = {side for metric in expected["metrics"] for side in ("high", "low") if getattr(metric, side) is not None}
    maybe("convergeTowards", "converge_towards", st.sampled_from([c for c in ("High", "Low") if c.lower() in has]))
    if draw(st.booleans()):
        document["registry"], expected["registry"] = draw(registries())
    return document, expected
