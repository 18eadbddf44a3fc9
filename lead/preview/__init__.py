"""Previews of what would happen if a task were created; nothing is booked or stored."""
