"""Tests mirror distdual/ file for file. naive.py holds an obvious version of everything, build.py makes data."""
