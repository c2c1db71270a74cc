"""For which Kubernetes the commands `render` and `migrate` write HPAs: their arguments, and what follows from them."""

import argparse

OPTION = "--kubernetes"


def add_kubernetes(parser: argparse.ArgumentParser) -> None:
    """Declare the version, or the cluster to ask for it."""
    chosen = parser.add_mutually_exclusive_group()
    chosen.add_argument(
        OPTION,
        metavar="VERSION",
        type=_version,
        help="write HPAs for this version, such as 1.34: before 1.35 without `tolerance`, which the API server drops "
        "there; default: 1.35 or newer",
    )
    chosen.add_argument("--kubeconfig", metavar="FILE", help="write HPAs as this file's current cluster keeps them")


def hpas_have_tolerance(parsed: argparse.Namespace) -> bool:
    """Whether the HPAs may have `tolerance`; asks the cluster of --kubeconfig. Raises KubeError."""
    import asyncio

    from adapter.kube.cluster import TOLERANCE_SINCE

    if parsed.kubeconfig:
        return asyncio.run(_ask(parsed.kubeconfig))
    return parsed.kubernetes is None or parsed.kubernetes >= TOLERANCE_SINCE


async def _ask(kubeconfig: str) -> bool:
    from adapter.kube.cluster import has_tolerance, server_version
    from adapter.kube.errors import MalformedAnswer
    from adapter.kube.session import Session

    async with await Session.open(kubeconfig) as session:
        version = await server_version(session)
        has_field = await has_tolerance(session, version)
    if has_field is None:
        raise MalformedAnswer(f"{version!r} is no version of Kubernetes; give {OPTION}")
    return has_field


def _version(text: str) -> tuple[int, int]:
    from adapter.kube.cluster import parse_version

    found = parse_version(text)
    if found is None:
        raise argparse.ArgumentTypeError(f"{text[:40]!r} is no version such as 1.34")
    return found
