"""Measures speed on the local device; see __main__.py for its commands."""
