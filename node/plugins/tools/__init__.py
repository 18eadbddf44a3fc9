"""The programs that measure: one module per tool, each with its ``TOOL``. Pure; starts nothing."""
