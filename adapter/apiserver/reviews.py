"""Creates TokenReviews and SubjectAccessReviews, and names the missing right if the API server forbids them."""

from adapter.kube.errors import Forbidden, KubeError
from adapter.kube.session import Session

_REMEDY = (
    "apply ClusterRoleBinding effective-load-auth-delegator of manifests/base, "
    "which gives this right (ClusterRole system:auth-delegator)"
)


class ReviewClient:
    """Creates TokenReviews and SubjectAccessReviews."""

    def __init__(self, api: Session) -> None:
        self._api = api
        self._forbidden: dict[str, str] = {}

    def check(self) -> str | None:
        """The rights that were missing at the last attempt, None if none was."""
        return "; ".join(self._forbidden.values()) or None

    async def create(self, path: str, review: bytes, timeout: float) -> bytes:  # noqa: ASYNC109  as the session has it
        """The review with its status. Raises KubeError; for a missing right, with the manifest that grants it."""
        try:
            answer = await self._api.exchange("POST", path, body=review, timeout=timeout)
        except Forbidden as error:
            self._forbidden[path] = f"{error.message}; {_REMEDY}"
            raise KubeError(self._forbidden[path], public=self._forbidden[path]) from error
        self._forbidden.pop(path, None)
        return answer
