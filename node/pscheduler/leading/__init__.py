"""Tasks led here in which hosts that run pScheduler take part."""
