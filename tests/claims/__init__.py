"""The article's claims, each on the installed torch.

One run of real ranks does all that is asked (``runs_*``); a proof per claim (``proofs_*``) looks at
what it returned.
"""
