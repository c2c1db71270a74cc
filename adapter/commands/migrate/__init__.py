"""Turns the objects of other autoscalers into a WatermarkPolicy and a native HPA, with a note on all that differs."""
