"""`python -m monitoring.alerts`: prints the alerting rules as a rule file, for a Prometheus without the operator."""

import argparse
import sys

from monitoring.alerts import RUNBOOKS, rule_file


def main() -> None:
    """Prints the rule file."""
    parser = argparse.ArgumentParser(prog="python -m monitoring.alerts", description=__doc__)
    parser.add_argument(
        "--runbooks", default=RUNBOOKS, metavar="URL", help="where the runbooks are (default: %(default)s)"
    )
    sys.stdout.write(rule_file(parser.parse_args().runbooks))


if __name__ == "__main__":
    main()
