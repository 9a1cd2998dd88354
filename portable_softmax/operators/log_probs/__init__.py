"""Log-probabilities of chosen elements of rows, with their entropies and ranks, and their gradient."""
