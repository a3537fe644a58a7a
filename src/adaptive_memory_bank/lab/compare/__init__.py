"""Trains every adapter under the same conditions and shows which one to use."""
