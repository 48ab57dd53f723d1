-- migrate:up
SET LOCAL lock_timeout = '2s';
CREATE FUNCTION count_order() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO total (name, n) VALUES ('orders', 1) ON CONFLICT (name) DO UPDATE SET n = total.n + 1;
    RETURN NEW;
END $$;
CREATE TRIGGER orders_counted AFTER UPDATE ON orders FOR EACH ROW EXECUTE FUNCTION count_order();

-- migrate:down
DROP TRIGGER orders_counted ON orders;
DROP FUNCTION count_order();
