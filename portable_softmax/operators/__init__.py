"""Calls: checked, then launched, passed to a compiler as an operator, or computed by the reference.

checks.py     checks of arguments
arguments.py  facts of tensors, and memory that a call may write to
reference.py  the definition of every result, by PyTorch operators
launch.py     the dictionary of launches, and how a call becomes one
operator.py   the rule: a launch, autograd, the operator of compilers
softmax.py    softmax and log_softmax; tokens.py: log-probabilities, samples and kept tokens
"""
