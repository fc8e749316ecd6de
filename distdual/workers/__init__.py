"""What runs next to the data: identity, groups, members, recent, stream, scan (pure), executor (where scans run)."""
