-- The role and the database of a node in this host's Postgres. Run it as often as you like, as postgres:
-- psql --file deploy/database.sql postgres

SELECT 'CREATE ROLE parley_reader NOLOGIN' WHERE NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'parley_reader') \gexec
SELECT 'CREATE ROLE parley LOGIN' WHERE NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'parley') \gexec
SELECT 'CREATE DATABASE parley OWNER parley' WHERE NOT EXISTS (SELECT FROM pg_database WHERE datname = 'parley') \gexec
