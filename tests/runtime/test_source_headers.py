"""Headers of a source from files: reloaded when they change, and no value in an error."""

from pathlib import Path

import pytest

from adapter.runtime.outbound import LARGEST_SECRET, Access, credentials
from adapter.runtime.source_errors import SourceUnreachable
from adapter.settings import SettingsError, parse_settings
from adapter.settings.registries import HttpRegistry
from adapter.usage.prometheus_api import PrometheusClient
from tests.usage.fakes import FakePrometheus

SERVER = "prometheus: {servers: [{name: main, url: 'http://prometheus:9090', %s}]}"
PLATFORM = "registries: [{type: HTTP, name: own, url: 'http://platform', %s}]"


class TestFiles:
    async def test_a_header_is_sent_with_the_value_of_its_file_and_read_anew_when_that_changes(
        self, tmp_path: Path
    ) -> None:
        file = tmp_path / "tenant"
        file.write_text("tenant-a\n")
        async with FakePrometheus() as fake:
            server = PrometheusClient(fake.settings(header_files={"X-Scope-OrgID": str(file)}, headers={"X-More": "b"}))
            await server.query("x", max_age=90)
            (tmp_path / "new").write_text("tenant-b")
            (tmp_path / "new").replace(file)
            await server.query("x", max_age=90)
            await server.close()
            sent = [(one.headers["X-Scope-OrgID"], one.headers["X-More"]) for one in fake.requests]
        assert sent == [("tenant-a", "b"), ("tenant-b", "b")]

    def test_the_http_registry_sends_headers_too_and_shows_no_value(self, tmp_path: Path) -> None:
        file = tmp_path / "key"
        file.write_text("hush\n")
        given = {"header_files": {"X-Api-Key": str(file)}, "headers": {"X-Other": "secret"}}
        settings = HttpRegistry.model_validate({"type": "HTTP", "name": "own", "url": "http://platform", **given})
        assert credentials(settings.access) == {"X-Api-Key": "hush", "X-Other": "secret"}
        assert "secret" not in repr(settings)

    @pytest.mark.parametrize(
        ("content", "why"),
        [
            (b"hush\r\nX-Remote-User: admin", "more than one line"),
            (b"hush\nmore", "more than one line"),
            (b"hush\x00", "more than one line"),
            (b"hush\xff", "no UTF-8 text"),
            ("hüsh".encode(), "printable ASCII"),
            (b"\n", "is empty"),
            (b"hush" * LARGEST_SECRET, "is larger than 16 KiB"),
        ],
    )
    async def test_a_value_that_fits_in_no_header_is_an_error_with_file_and_key_and_without_the_value(
        self, tmp_path: Path, content: bytes, why: str
    ) -> None:
        file = tmp_path / "value"
        file.write_bytes(content)
        async with FakePrometheus() as fake:
            server = PrometheusClient(fake.settings(header_files={"X-Api-Key": str(file)}))
            with pytest.raises(SourceUnreachable) as caught:
                await server.query("x", max_age=90)
            await server.close()
            assert not fake.requests
        said = str(caught.value)
        assert "headerFiles, X-Api-Key: " in said
        assert str(file) in said
        assert why in said
        assert "hush" not in said
        assert str(file) not in caught.value.public

    def test_a_file_that_is_not_there_is_named_with_its_key(self) -> None:
        access = Access(header_files={"X-Api-Key": "/nowhere"})
        with pytest.raises(ValueError, match="headerFiles, X-Api-Key: cannot use /nowhere: No such file"):
            credentials(access)


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
