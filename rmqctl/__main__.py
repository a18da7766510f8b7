"""The console script ``rmqctl``, and ``python -m rmqctl``."""

import gc


def main() -> None:
    """Runs the command line; Ctrl-C ends it quietly even while its modules are being loaded."""
    # Short-lived and without cycles worth a search: looking for them, while modules are loaded and
    # once more at the end, costs a tenth of the time.
    gc.set_threshold(50_000, 20, 50)
    try:
        from rmqctl.cli.main import main as run

        run()
    except KeyboardInterrupt:
        raise SystemExit(130) from None
    finally:
        gc.freeze()


if __name__ == "__main__":
    main()
