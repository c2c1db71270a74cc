"""A Polaris source that runs, and the pods whose service it follows."""

from functools import partial

from lab.harness.registries.polaris import Polaris
from tests.registries.kit import follow

following = partial(follow, "Polaris")


class Registrations:
    """Registers the pods `web-0` … at 10.0.0.10 …, and pulls them out, through Polaris' own API."""

    def __init__(self, polaris: Polaris, service: str, namespace: str = "default") -> None:
        self._polaris, self._place = polaris, {"service": service, "namespace": namespace}

    def register(self, *numbers: int, **more: object) -> None:
        """Register these pods."""
        self._call("POST", "", numbers, **more)

    def change(self, *numbers: int, **fields: object) -> None:
        """Change registrations: `isolate`, `healthy`, `weight`, `metadata`."""
        self._call("PUT", "", numbers, **fields)

    def deregister(self, *numbers: int) -> None:
        """Take these pods' registrations away."""
        self._call("POST", "/delete", numbers)

    def _call(self, method: str, path: str, numbers: tuple[int, ...], **fields: object) -> None:
        instances = [{**self._place, "host": f"10.0.0.{10 + n}", "port": 8080, **fields} for n in numbers]
        self._polaris.call(method, f"/naming/v1/instances{path}", instances)
