"""What would happen if a task were created; nothing is booked or kept."""
