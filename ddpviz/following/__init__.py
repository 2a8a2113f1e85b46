"""A recording followed while it grows: which steps are whole, and the tables of the last ones.

What the live explorer and pages both draw from. May import views and everything above them; must
not import explorer or export.
"""
