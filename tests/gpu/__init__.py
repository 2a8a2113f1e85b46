"""On a GPU: what only CUDA's own streams and events can show.

Not yet run on one. ``make gpu`` runs them on a machine that has one, with its own torch.
"""
