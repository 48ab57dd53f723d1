-- migrate:up
SET LOCAL lock_timeout = '2s';
CREATE TABLE memo (id bigint PRIMARY KEY, at timestamptz);
CREATE FUNCTION stamp() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN NEW.at := now(); RETURN NEW; END $$;
CREATE TRIGGER memo_stamped BEFORE INSERT ON memo FOR EACH ROW EXECUTE FUNCTION stamp();

-- migrate:down
DROP TABLE memo;
DROP FUNCTION stamp();
