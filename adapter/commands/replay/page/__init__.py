"""The report of a replay as one self-contained HTML page: charts, figures and suggestions; it loads nothing."""
