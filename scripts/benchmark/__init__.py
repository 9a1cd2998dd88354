"""Measures speed on the device that is here; see __main__.py for its commands."""
