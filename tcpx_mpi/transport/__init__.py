"""Transports, which move bytes: the interface, and the engine that drives a net plugin."""
