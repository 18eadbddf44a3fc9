"""Meshes: one file that says who measures what to whom, and what it would take. Pure.

``document`` is the file, ``expansion`` the tasks it stands for, ``terms`` what each of them asks,
``lint`` what is wrong with it, ``comparison`` how it differs from what exists, ``sampling`` whom to
ask about it, and ``demand`` how full it makes the nodes.
"""
