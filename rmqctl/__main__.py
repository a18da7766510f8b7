"""``python -m rmqctl``."""

from rmqctl.cli.main import main

if __name__ == "__main__":
    main()
