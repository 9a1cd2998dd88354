"""Functions, modules and overrides of the public API."""
