"""Protobuf message types: finds them by name, builds messages from documents, and checks messages as Envoy does."""
