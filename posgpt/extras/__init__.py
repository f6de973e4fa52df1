"""What stands apart from the core: each module or folder is a command, which imports the core and is imported by nothing in it."""
