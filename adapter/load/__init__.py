"""Pure arithmetic: from a policy, pods, samples and a roster to one replica count.

No I/O, no clock, no event loop: time is an argument (seconds since the epoch, UTC), quantities are exact (integers of
nano-units, or fractions). The same two functions serve the API, the CLI and the tests: `assess`, the expensive part,
once per change, and `decide`, at each request, with the live replica count.
"""
