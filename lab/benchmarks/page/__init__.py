"""docs/performance.md, made from the stored results: `python -m lab.benchmarks.page [--write]`.

Each part of the page is a Jinja template in this folder, `NN_name.md.j2`, in the order of the numbers; `page.md.j2`
puts them together. Figures come from `lab/benchmarks/results/NAME.json` and nowhere else. A template has:

- `result("NAME")`, the content of NAME.json: `{{ result("decide")["20 serving"].assess | figure }} ms`.
- filters: `figure` (2 significant digits, or `figure(3)`), `percent` (of a share), `exponent` (of the growth of pairs).
- `source("NAME")`: the command and a link to the figures with commit and date.
- `aim(what, value, "<=", limit, unit, reason)`: a row of the summary at the top; met or missed is computed, and a
  missed aim needs a reason.
- `tried(what, figure, why_not)`: a row of the table of what did not pay.

`aim` and `tried` print nothing where they stand. The rest is plain Markdown and Jinja.
"""
