"""Calls: checked, then launched, passed to a compiler as an operator, or computed by the reference.

arguments.py  keys of calls, and checks of arguments
reference.py  the definition of every result, by PyTorch operators
memory.py     what a call may write to
launch.py     the dictionary of launches, and how a call becomes one
softmax.py    softmax and log_softmax: the rule, autograd, the operator
log_probs.py  log-probabilities of tokens, likewise
sample.py     samples of tokens, likewise
kept.py       ids of kept tokens as a mask in bits
"""
