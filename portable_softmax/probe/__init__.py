"""What scripts/probe_device.py prints: the device, its facts and where they come from, a plan and its reasons."""
