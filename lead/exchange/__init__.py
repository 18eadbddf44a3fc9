"""Books one task with its participants: proposals, holds, the decision, and its delivery."""
