"""What measures: one module per tool, each with its ``TOOL``. Pure; none starts a program."""
