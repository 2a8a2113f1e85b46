"""The command as a user types it: on a real run, in processes of its own.

May use every part of ddpviz; no other tests import from here.
"""
