"""Meshes: one file that describes which nodes measure what, and what that requires. Pure.

``document`` parses the file, ``expansion`` derives its tasks, ``terms`` their documents, ``lint``
finds faults, ``comparison`` compares with existing tasks, ``sampling`` chooses tasks to preview,
``answers`` turns previews into findings, and ``demand`` computes how full the nodes get.
"""
