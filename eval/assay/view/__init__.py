"""A finished run as a reader holds it: whatever asked, one form of rows, conditions and answers."""
