"""Replays of many services: on all cores, in shards on many machines, and ranked."""
