"""The console script ``rmqctl``, and ``python -m rmqctl``."""


def main() -> None:
    """Runs the command line; Ctrl-C ends it quietly even while its modules are being loaded."""
    try:
        from rmqctl.cli.main import main as run
    except KeyboardInterrupt:
        raise SystemExit(130) from None
    run()


if __name__ == "__main__":
    main()
