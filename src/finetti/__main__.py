"""``python -m finetti`` is the same as the command ``finetti``."""

from finetti.cli.main import main

if __name__ == "__main__":
    main()
