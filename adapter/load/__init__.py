"""Pure arithmetic: from pods, samples and a policy to one replica count.

No I/O, no clock, no event loop: time comes in as an argument (seconds since the epoch, UTC), quantities are exact
(integers of nano-units, or fractions), and the same two functions serve the API, the CLI and the tests:
`assess` (the heavy part, once per change) and `decide` (at each request, with the live replica count).
"""
