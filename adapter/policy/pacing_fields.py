"""Reads the fields that limit how fast the replica count moves: velocity, cooldown, schedules, fallback."""

from dataclasses import replace
from datetime import UTC, datetime, tzinfo
from typing import TypeVar
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from adapter.load.spec import Cooldown, Delay, Fallback, Schedule, Velocity
from adapter.policy.field_reader import FieldReader

Period = TypeVar("Period", Cooldown, Delay)

MOST_SCHEDULES = 20
MOST_REPLICAS = 2**31 - 1
_DAY = 86_400
_WEEK = 7 * _DAY
_LARGEST_PERCENT = 10_000
_CRON_FIELDS = 5
_LONGEST_NAME = 63


def velocity(fields: FieldReader) -> Velocity:
    """The policy's velocity; an absent direction has no limit."""
    limits = Velocity(
        up=fields.optional_integer("scaleUpPercent", 0, _LARGEST_PERCENT),
        down=fields.optional_integer("scaleDownPercent", 0, 100),
    )
    fields.close()
    return limits


def periods(fields: FieldReader, default: Period) -> Period:
    """A cooldown or delay; an absent direction has the default's."""
    up, down = (fields.optional_integer(key, 0, _DAY) for key in ("scaleUpSeconds", "scaleDownSeconds"))
    fields.close()
    return replace(default, up=default.up if up is None else up, down=default.down if down is None else down)


def schedules(spec: FieldReader) -> tuple[Schedule, ...]:
    """The policy's schedules, in their order."""
    read = tuple(_schedule(fields) for fields in spec.sections("schedules", MOST_SCHEDULES))
    names = [schedule.name for schedule in read if schedule.name]
    for name in sorted({name for name in names if names.count(name) > 1}):
        spec.fault("schedules", name, "Duplicate value; name each schedule once")
    return read


def _schedule(fields: FieldReader) -> Schedule:
    name = fields.text("name", required="Required value: a schedule needs a name", longest=_LONGEST_NAME)
    cron = fields.text("cron", required="Required value: when it begins, such as 0 11 * * 1-5")
    if cron and (reason := _cron_fault(cron)):
        fields.fault("cron", cron, f"is no cron expression ({reason}); write five fields, such as 0 11 * * 1-5")
        cron = ""
    zone: tzinfo = UTC
    zone_name = fields.text("timeZone") or "UTC"
    try:
        zone = ZoneInfo(zone_name)
    except (ValueError, OSError, LookupError):
        advice = "is not a time zone; write a name of the IANA database, such as Asia/Shanghai"
        fields.fault("timeZone", zone_name, advice)
    schedule = Schedule(
        name=name,
        cron=cron or "0 0 * * *",
        zone=zone,
        duration=fields.integer("durationSeconds", 3600, 60, _WEEK),
        minimum=fields.optional_integer("minReplicas", 0, MOST_REPLICAS),
        maximum=fields.optional_integer("maxReplicas", 1, MOST_REPLICAS),
    )
    if not fields.has("durationSeconds"):
        fields.fault("durationSeconds", None, "Required value: how long each time lasts")
    if schedule.minimum is None and schedule.maximum is None:
        fields.fault("", schedule.name or None, "a schedule needs minReplicas, maxReplicas or both")
    elif schedule.minimum is not None and schedule.maximum is not None and schedule.minimum > schedule.maximum:
        fields.fault("minReplicas", schedule.minimum, "minReplicas must be at most maxReplicas")
    fields.close()
    return schedule


def _cron_fault(cron: str) -> str:
    fields = [field for field in cron.split(" ") if field]
    if len(fields) != _CRON_FIELDS or fields != cron.split():
        return "it has not five fields"
    try:
        first = next(CronSim(cron, datetime(2000, 1, 1, tzinfo=UTC)), None)
    except CronSimError as error:
        return str(error)
    return "" if first is not None else "it never comes"


def fallback(spec: FieldReader) -> Fallback | None:
    """The policy's fallback, None where it has none."""
    if spec.get("fallback") is None:
        return None
    fields = spec.section("fallback")
    if not fields.has("replicas"):
        fields.fault("replicas", None, "Required value: the count to have at least")
    minimum = Fallback(
        after=fields.integer("afterSeconds", 300, 0, _DAY), replicas=fields.integer("replicas", 1, 1, MOST_REPLICAS)
    )
    fields.close()
    return minimum
