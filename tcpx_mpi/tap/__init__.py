"""The files of the tap: which rank sent what to which, when, and whose the time was.

The tap (native/tap) is a plugin that passes calls on to another one; each process of the job has a
file of its own. `file` reads one, `joined` pairs the ends of all, `ways` makes figures of them.
"""
