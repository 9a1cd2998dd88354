"""Calls: read, then launched, handed to a compiler as an operator, or computed by the reference.

arguments.py  the facts of tensors, and the checks of arguments
reference.py  every result, defined by torch operators
launch.py     the dictionary of launches, and how a call becomes one
softmax.py    softmax and log_softmax: the rule, autograd, the operator
log_probs.py  log-probabilities of tokens, likewise
"""
