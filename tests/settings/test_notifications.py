"""The settings of notifications."""

import pytest

from adapter.settings import parse_settings
from adapter.settings.companion import Severity, Topic
from tests.settings.test_settings import faults


def route(**changes: object) -> str:
    lines = {"name": "oncall", "urls": "[json://a]", "namespaces": "['*']", **changes}
    inner = ", ".join(f"{key}: {value}" for key, value in lines.items() if value is not None)
    return f"companion: {{notifications: {{routes: [{{{inner}}}]}}}}"


def test_a_route_is_read() -> None:
    (found,) = parse_settings(
        route(urls=None, urlFile="/f", events="[scaled, atMaximum]", severities="[critical]", default="true")
    ).companion.notifications.routes
    assert (found.url_file, found.urls, found.default) == ("/f", (), True)
    assert found.events == (Topic.SCALED, Topic.AT_MAXIMUM)
    assert found.severities == (Severity.CRITICAL,)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (route(urls=None), "exactly one of urlFile and urls"),
        (route(urlFile="/f"), "exactly one of urlFile and urls"),
        (route(template="'$polcy'"), "is unknown, did you mean policy?"),
        (route(title="'costs 5$'"), "write $$ for a dollar"),
        (route(events="[scald]"), "'scaled', 'versionMismatch'"),
        (route(rateLimit="{count: 0}"), "greater than or equal to 1"),
        (route(hook="x"), "there is no such key"),
        (route().replace("}]}}", "}, {name: oncall, urls: [json://b], namespaces: ['*']}]}}"), "names are unique"),
    ],
)
def test_what_is_wrong_is_named(text: str, says: str) -> None:
    assert any(says in advice for advice in faults(text).values())
