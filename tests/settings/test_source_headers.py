"""Headers of a source in the settings: what cannot be sent is refused, without its value."""

import pytest

from adapter.settings import SettingsError, parse_settings

SERVER = "prometheus: {servers: [{name: main, url: 'http://prometheus:9090', %s}]}"
PLATFORM = "registries: [{type: HTTP, name: own, url: 'http://platform', %s}]"


class TestSettings:
    @pytest.mark.parametrize("template", [SERVER, PLATFORM], ids=["Prometheus", "HTTP registry"])
    @pytest.mark.parametrize(
        ("keys", "why"),
        [
            ("headerFiles: {'X Key': /a}", "is an invalid header name"),
            ('headers: {"X-Key\\r\\nX-Remote-User": a}', "is an invalid header name"),
            ('headers: {X-Key: "secret\\r\\nX-Remote-User: admin"}', "one line of printable characters"),
            ("headerFiles: {X-Key: ''}", "the path of a file"),
            ("headers: {x-key: a}, headerFiles: {X-Key: /a}", "is set by another key as well"),
            ("bearerTokenFile: /t, headerFiles: {authorization: /a}", "is set by another key as well"),
            ("headers: {Host: other}", "is set by the adapter itself"),
            ("headerFiles: {Content-Length: /a}", "is set by the adapter itself"),
        ],
    )
    def test_headers_that_cannot_be_sent_are_refused_without_their_values(
        self, template: str, keys: str, why: str
    ) -> None:
        with pytest.raises(SettingsError) as caught:
            parse_settings(template % keys)
        assert why in str(caught.value)
        assert "secret" not in str(caught.value)

    @pytest.mark.parametrize("template", [SERVER, PLATFORM], ids=["Prometheus", "HTTP registry"])
    def test_valid_headers_are_accepted(self, template: str) -> None:
        parse_settings(template % "headers: {X-A: b}, headerFiles: {X-Scope-OrgID: /etc/tenant/id}")
