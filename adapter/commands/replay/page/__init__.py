"""The report of a replay as one self-contained HTML page: charts and figures; it loads nothing."""
