"""How fast a policy lets the count move: velocity, cooldown, schedules, fallback."""

from datetime import UTC, datetime, tzinfo
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from adapter.load.spec import Cooldown, Fallback, Schedule, Velocity
from adapter.policy.field_reader import FieldReader

MOST_SCHEDULES = 20
MOST_REPLICAS = 2**31 - 1
_DAY = 86_400
_WEEK = 7 * _DAY
_LARGEST_PERCENT = 10_000
_CRON_FIELDS = 5
_LONGEST_NAME = 63


def velocity(form: FieldReader) -> Velocity:
    """The policy's velocity; a direction that is absent is not limited."""
    found = Velocity(
        up=form.optional_integer("scaleUpPercent", 0, _LARGEST_PERCENT),
        down=form.optional_integer("scaleDownPercent", 0, 100),
    )
    form.close()
    return found


def cooldown(form: FieldReader) -> Cooldown:
    """The policy's cooldown; a direction that is absent has none."""
    found = Cooldown(up=form.integer("scaleUpSeconds", 0, 0, _DAY), down=form.integer("scaleDownSeconds", 0, 0, _DAY))
    form.close()
    return found


def schedules(spec: FieldReader) -> tuple[Schedule, ...]:
    """The policy's schedules, in their order."""
    found = tuple(_schedule(form) for form in spec.sections("schedules", MOST_SCHEDULES))
    names = [schedule.name for schedule in found if schedule.name]
    for name in sorted({name for name in names if names.count(name) > 1}):
        spec.fault("schedules", name, "Duplicate value; name each schedule once")
    return found


def _schedule(form: FieldReader) -> Schedule:
    schedule = Schedule(
        name=form.text("name", required="Required value: a schedule needs a name", longest=_LONGEST_NAME),
        cron=_cron(form),
        zone=_zone(form),
        duration=form.integer("durationSeconds", 3600, 60, _WEEK),
        minimum=form.optional_integer("minReplicas", 0, MOST_REPLICAS),
        maximum=form.optional_integer("maxReplicas", 1, MOST_REPLICAS),
    )
    if not form.has("durationSeconds"):
        form.fault("durationSeconds", None, "Required value: how long each time lasts")
    if schedule.minimum is None and schedule.maximum is None:
        form.fault("", schedule.name or None, "a schedule needs minReplicas, maxReplicas or both")
    elif schedule.minimum is not None and schedule.maximum is not None and schedule.minimum > schedule.maximum:
        form.fault("minReplicas", schedule.minimum, "minReplicas must be at most maxReplicas")
    form.close()
    return schedule


def _cron(form: FieldReader) -> str:
    text = form.text("cron", required="Required value: when it begins, such as 0 11 * * 1-5")
    reason = _fault_of(text) if text else ""
    if reason:
        form.fault("cron", text, f"is no cron expression ({reason}); write five fields, such as 0 11 * * 1-5")
    return text if text and not reason else "0 0 * * *"


def _fault_of(cron: str) -> str:
    if len([field for field in cron.split(" ") if field]) != _CRON_FIELDS:
        return "it has not five fields"
    try:
        first = next(CronSim(cron, datetime(2000, 1, 1, tzinfo=UTC)), None)
    except CronSimError as error:
        return str(error)
    return "" if first is not None else "it never comes"


def _zone(form: FieldReader) -> tzinfo:
    name = form.text("timeZone") or "UTC"
    try:
        return ZoneInfo(name)
    except (ValueError, OSError, LookupError):
        form.fault("timeZone", name, "is no time zone; write a name of the IANA database, such as Asia/Shanghai")
        return UTC


def fallback(spec: FieldReader) -> Fallback | None:
    """The policy's fallback, None where it has none."""
    if spec.get("fallback") is None:
        return None
    form = spec.section("fallback")
    if not form.has("replicas"):
        form.fault("replicas", None, "Required value: the count to have at least")
    found = Fallback(
        after=form.integer("afterSeconds", 300, 0, _DAY), replicas=form.integer("replicas", 1, 1, MOST_REPLICAS)
    )
    form.close()
    return found
