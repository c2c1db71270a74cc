"""The arguments of `replay --all` and `replay --merge`; light, as the command line imports them."""

import argparse


def add_fleet(command: argparse.ArgumentParser) -> None:
    """Declare which services are replayed, in which part, and how parts become a report."""
    fleet = command.add_argument_group("many services")
    fleet.add_argument("--all", action="store_true", help="every policy of the cluster, or of --policies DIR")
    fleet.add_argument("-n", "--namespace", metavar="NAME", help="with --all: only the policies of this namespace")
    fleet.add_argument("--policies", metavar="DIR", help="with --all: the policies in the YAML files of this folder")
    fleet.add_argument("--kubeconfig", metavar="FILE", help="with --all: as for serve")
    fleet.add_argument("--workers", metavar="N", type=int, help="processes; default: one a core")
    fleet.add_argument(
        "--shard", metavar="I/N", help="with --all: only part I of N (0 to N-1), as JSON for --merge; such as 0/8"
    )
    fleet.add_argument("--part", metavar="FILE", help="with --shard: write the part here, not to standard output")
    fleet.add_argument("--merge", metavar="PART", nargs="+", help="rank the parts of a run, without replaying anything")
    fleet.add_argument(
        "--top", metavar="N", type=int, default=20, help="services in each ranking of the text; default: %(default)s"
    )
