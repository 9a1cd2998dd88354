"""Times launches on the local device, and fits the numbers of their cost to them."""
