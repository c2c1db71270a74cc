"""Nacos: lists by HTTP, and pushes by gRPC."""
