ALTER TABLE kennel_sync DROP CONSTRAINT kennel_sync_kennel_id_key;
