DROP TABLE IF EXISTS kennel_sync;
DROP TABLE IF EXISTS kennel;
DROP DOMAIN percent;
DROP TYPE sync_status;
DROP TYPE source_type;
