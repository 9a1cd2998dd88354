"""Log-probabilities of chosen elements of rows, with their entropies, and their gradient."""
