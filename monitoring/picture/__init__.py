"""Draws the dashboards with Grafana's own UI library from a run of the demo: pictures for the documentation.

Node.js, Chromium and the control plane are needed, and about six minutes; tests and CI do without.
"""
