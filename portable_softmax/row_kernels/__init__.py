"""User kernels: their resources, resident programs, configurations that fit a device, and launches."""
