"""The alerting rules as a rule file, and promtool's tests of them. Not part of the image."""
