#!/bin/sh
# Serves the node's Postgres at a socket in /run/postgresql, and on no network. The first start makes the
# cluster, and each start the role and the database if they are not there.
set -e

major=$(ls /usr/lib/postgresql)
PATH=/usr/lib/postgresql/$major/bin:$PATH
data=/var/lib/postgresql/$major

if [ ! -d "$data" ]; then
    others=$(cd /var/lib/postgresql && ls -d [0-9]* 2>/dev/null || true)
    if [ -n "$others" ]; then
        echo "the data are those of Postgres $others, and this image has Postgres $major: see README.md, \"Upgrade\"" >&2
        exit 1
    fi
    rm -rf "$data.new"
    initdb --pgdata="$data.new" --username=postgres --auth=peer --encoding=UTF8 --locale=C.UTF-8 >/dev/null
    mv "$data.new" "$data"
fi

pg_ctl --silent --pgdata="$data" --options="-c listen_addresses='' -c unix_socket_directories=/tmp" start
psql --host=/tmp --no-psqlrc --quiet --set=ON_ERROR_STOP=1 --file=/usr/share/parley/database.sql postgres
pg_ctl --silent --pgdata="$data" --mode=fast stop

exec postgres -D "$data" -c listen_addresses= -c unix_socket_directories=/run/postgresql -c timezone=UTC "$@"
