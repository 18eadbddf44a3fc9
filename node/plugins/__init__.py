"""Tests (what is measured) and tools (the programs that measure), one module each."""
