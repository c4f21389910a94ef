"""Is a node ready for a run, and are all nodes alike? One file a step.

hostfile   what a hostfile says, and whether its names can be reached
facts      what a node is: reads the system, decides nothing
probe      the plugin, in a process of its own that it may end
checks     facts -> findings of one node; pure
agreement  facts of all nodes -> findings; pure
findings   a finding, their text and exit code
"""
