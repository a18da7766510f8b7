"""One module a command; ``rmqctl.cli.main`` names them and loads the one that is asked for."""
