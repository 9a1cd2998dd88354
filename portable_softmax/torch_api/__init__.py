"""The functions, modules and operators that a PyTorch user calls."""
