"""The net plugin: which file, and why; its sockets; settings that it does not outlive."""
