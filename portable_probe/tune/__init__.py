"""Times launches on the device that is here, and fits the numbers of their cost to them."""
