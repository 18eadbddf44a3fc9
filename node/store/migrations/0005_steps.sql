-- Remember the steps by which the database came to its schema, and which programs may use it.
-- Oldest program: 5

ALTER TABLE schema_version ADD COLUMN migration text, ADD COLUMN oldest_program integer;
UPDATE schema_version SET oldest_program = version;
ALTER TABLE schema_version ALTER COLUMN oldest_program SET NOT NULL;
COMMENT ON TABLE schema_version IS
'The version in which the database was set up, and each that it was migrated to. The last row tells which programs may use it.';
COMMENT ON COLUMN schema_version.digest IS
'SHA-256 of the schema.sql of the program that did it, without comments and spacing.';
COMMENT ON COLUMN schema_version.migration IS
'SHA-256 of the migration''s statements, likewise; null where the database was set up.';
COMMENT ON COLUMN schema_version.oldest_program IS
'Programs whose schema has this version or a later one may use the database.';
