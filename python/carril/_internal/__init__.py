"""What stands behind the public names. Nothing in here is for users, and all of it may change."""
