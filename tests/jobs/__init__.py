"""Tests of distdual/jobs/."""
