"""Calls: checked, then launched, passed to a compiler as an operator, or computed by the reference."""
