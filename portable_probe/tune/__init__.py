"""Measures on the device that is here which numbers its launches are best computed with, and writes them down."""
