"""Artefacts to hand over: pages that work offline from a file, nothing fetched from anywhere.

May import views and everything above it; must not import explorer, lab or the probe.
"""
