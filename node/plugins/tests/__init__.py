"""What can be measured: one module per test, each with its ``TEST``. Pure; none knows another."""
