"""Devices: their facts, from YAML profiles and the live driver, and one backend for each vendor."""
