"""The documents that programs exchange: frozen models that forbid unknown fields."""
