"""What runs next to the data: scan (pure), executor (where scans run)."""
