"""Writes to HPAs: what the companion owns of their behavior, and the question whether they have a tolerance at all."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import msgspec

from adapter.companion.context import ToleranceField
from adapter.companion.writes.actions import AskTolerance, WireHpa
from adapter.kube.api import APPLY_PATCH, HPAS, MERGE_PATCH
from adapter.kube.errors import MalformedAnswer
from adapter.policy.managed_fields import FIELD_MANAGER
from adapter.runtime.decoding import Decoder

Patch = Callable[[str, object, str, dict[str, str]], Awaitable[bytes]]


class HpaWriter:
    """The HPAs of one cluster, written by `patch(path, body, content type, parameters)`; `now` in seconds."""

    def __init__(self, patch: Patch, now: Callable[[], float]) -> None:
        self._patch = patch
        self._now = now
        self.tolerance = ToleranceField()

    async def ask_tolerance(self, action: AskTolerance) -> None:
        """Ask the API server what it would keep of a tolerance; nothing is written. Raises KubeError."""
        body = {"spec": {"behavior": {"scaleUp": {"tolerance": "0"}}}}
        self.tolerance = ToleranceField(known=self.tolerance.known, asked_at=self._now())
        hpa = HPAS.path(action.key.namespace, action.hpa)
        self._learn(await self._patch(hpa, body, MERGE_PATCH, {"dryRun": "All", "fieldManager": FIELD_MANAGER}))

    async def wire(self, action: WireHpa) -> None:
        """Set the fields, by server-side apply, of this very version; nobody else's are taken. Raises KubeError."""
        body = {
            "apiVersion": HPAS.api_version,
            "kind": "HorizontalPodAutoscaler",
            "metadata": {
                "name": action.hpa,
                "namespace": action.key.namespace,
                "uid": action.uid,
                "resourceVersion": action.version,
            },
            "spec": {"behavior": action.behavior},
        }
        hpa = HPAS.path(action.key.namespace, action.hpa)
        answer = await self._patch(hpa, body, APPLY_PATCH, {"fieldManager": FIELD_MANAGER, "force": "false"})
        if "tolerance" in action.behavior.get("scaleUp", {}):
            self._learn(answer)

    def _learn(self, answer: bytes) -> None:
        """Whether the tolerance is still there in an answer to a request that set it."""
        rules = _mapping(_mapping(_mapping(_read(answer).get("spec")).get("behavior")).get("scaleUp"))
        self.tolerance = ToleranceField(known="tolerance" in rules, asked_at=self._now())


_HPA = Decoder(dict[str, Any])


def _read(body: bytes) -> dict[str, Any]:
    try:
        return _HPA.decode(body)
    except msgspec.MsgspecError as error:
        raise MalformedAnswer(f"the answer is no HPA: {error}") from error


def _mapping(found: object) -> Mapping[str, Any]:
    return found if isinstance(found, Mapping) else {}
