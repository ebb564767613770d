"""The pytest plugin: tests on several ranks, in processes that stay from test to test."""
