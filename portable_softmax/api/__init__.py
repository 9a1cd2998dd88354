"""The functions, modules and patches that a PyTorch user calls."""
