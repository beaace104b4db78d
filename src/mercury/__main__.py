"""`python -m mercury`, and what `spark-submit` is given: the command line."""

from mercury.cli.main import main

main()
