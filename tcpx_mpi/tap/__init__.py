"""What files of the tap say of a job: who sent what to whom, when, and whose the time was.

The tap (native/tap) is a plugin that passes calls on to another one; each process of the job has a
file of its own. `file` reads one, `joined` pairs the ends of all, `ways` makes figures of them.
"""
