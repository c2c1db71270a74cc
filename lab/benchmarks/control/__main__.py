"""Pod-hours at equal shortfall on three synthetic services: `python -m lab.benchmarks.control`.

The stock HPA, a policy with the watermarks and the pace that we ship, what `replay --suggest --shortfall` finds on the
first half of a history, and perfect knowledge. On the second half every level (target or high watermark) is moved until
the shortfall is exactly the aim: what is compared is the band and the pace, not the luck of a week. `as_set` is the
suggestion as it was found, with the shortfall that the second half then had.
"""

from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context

from lab.benchmarks import record
from lab.benchmarks.control.contest import figures
from lab.benchmarks.control.services import SERVICES


def main() -> None:
    """Plays the services, each in a process."""
    parser = record.argument_parser(__doc__)
    parser.add_argument("--days", type=float, default=14, help="of each service, half to tune on, half to judge on")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--aims", type=float, nargs="+", default=[0.005, 0.001])
    options = parser.parse_args()
    came_from = record.origin()
    with ProcessPoolExecutor(len(SERVICES), mp_context=get_context("spawn")) as pool:
        service = partial(figures, seed=options.seed, days=options.days, aims=options.aims)
        found = {"days": options.days, "services": list(pool.map(service, SERVICES))}
    record.write(options.output, found, came_from=came_from)


if __name__ == "__main__":
    main()
