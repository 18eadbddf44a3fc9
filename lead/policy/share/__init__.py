"""Axis 2: how many seats each campaign may add, and in which order campaigns are served."""
