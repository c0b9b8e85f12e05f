"""What a reader may see."""
