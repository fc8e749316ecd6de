"""What runs next to the data: identity, groups, members, recent, reading, scan (pure), executor (where scans run)."""
