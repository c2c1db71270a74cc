"""What the companion may do. A plan lists actions; `writer` carries them out."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from adapter.snapshot import Key


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteStatus:
    """Put this in place of the policy's status."""

    key: Key
    uid: str
    status: Mapping[str, Any]


Action = WriteStatus
