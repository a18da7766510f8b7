"""The command line: the only room with a user. Options, rows on stdout, exit codes."""
