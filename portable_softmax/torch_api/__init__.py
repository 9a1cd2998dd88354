"""The functions, modules and operators that a PyTorch user calls."""

import torch  # noqa: F401 - first, as it imports the operators, which do not find half of one of these modules
