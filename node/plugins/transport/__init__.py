"""How archivers that speak over sockets send; what is sent over them is theirs."""
