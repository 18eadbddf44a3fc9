"""A server of OWAMP (RFC 4656), for perfSONAR hosts that measure to and from this one."""
