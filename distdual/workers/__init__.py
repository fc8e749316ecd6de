"""What runs next to the data: identity, groups, members, recent, scan (pure), executor (where scans run)."""
