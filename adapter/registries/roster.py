"""Names for the sources of the first edition, until they are rewritten."""

from adapter.registries.cache import OnChange
from adapter.registries.source import ServiceKey, service_of

__all__ = ["OnChange", "ServiceKey", "service_of"]
