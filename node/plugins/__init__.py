"""Tests (what is measured), tools (the programs that measure) and archivers, one module each."""
