"""What travels between programs: frozen models that forbid unknown fields."""
