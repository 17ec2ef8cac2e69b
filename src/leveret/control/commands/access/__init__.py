"""Commands about users, their permissions and limits."""
