"""Writes to HPAs: applies the companion's fields of `behavior`, and probes whether the API server knows `tolerance`."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import msgspec

from adapter.companion.state import ToleranceField
from adapter.companion.writes.actions import AskTolerance, WireHpa
from adapter.kube.api import APPLY_PATCH, HPAS, MERGE_PATCH
from adapter.kube.errors import MalformedAnswer
from adapter.policy.managed_fields import FIELD_MANAGER
from adapter.runtime.decoding import Decoder

Patch = Callable[[str, object, str, dict[str, str]], Awaitable[bytes]]


class HpaWriter:
    """Writes HPAs by `patch(path, body, content type, parameters)`; `now` gives seconds.

    `tolerance` is what their answers have shown of the field.
    """

    def __init__(self, patch: Patch, now: Callable[[], float]) -> None:
        self._patch = patch
        self._now = now
        self.tolerance = ToleranceField()

    async def ask_tolerance(self, action: AskTolerance) -> None:
        """Sets a tolerance in a dry run, to see whether the API server keeps it. Raises KubeError."""
        body = {"spec": {"behavior": {"scaleUp": {"tolerance": "0"}}}}
        self.tolerance = ToleranceField(known=self.tolerance.known, asked_at=self._now())
        hpa = HPAS.path(action.key.namespace, action.hpa)
        self._learn(await self._patch(hpa, body, MERGE_PATCH, {"dryRun": "All", "fieldManager": FIELD_MANAGER}))

    async def wire(self, action: WireHpa) -> None:
        """Applies the fields to this version of the HPA, without force. Raises KubeError."""
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
        """Notes whether the answer to a request that set a tolerance still has it."""
        rules = _mapping(_mapping(_mapping(_read(answer).get("spec")).get("behavior")).get("scaleUp"))
        self.tolerance = ToleranceField(known="tolerance" in rules, asked_at=self._now())


_HPA = Decoder(dict[str, Any])


def _read(body: bytes) -> dict[str, Any]:
    try:
        return _HPA.decode(body)
    except msgspec.MsgspecError as error:
        raise MalformedAnswer(f"the answer is no HPA: {error}") from error


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
