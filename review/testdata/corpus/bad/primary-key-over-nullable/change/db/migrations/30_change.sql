-- migrate:up
SET LOCAL lock_timeout = '2s';
ALTER TABLE total DROP CONSTRAINT total_pkey;
ALTER TABLE orders DROP CONSTRAINT orders_pkey, ADD PRIMARY KEY (comment);

-- migrate:down
ALTER TABLE orders DROP CONSTRAINT orders_pkey, ADD PRIMARY KEY (id);
ALTER TABLE orders ALTER comment DROP NOT NULL;
ALTER TABLE total ADD PRIMARY KEY (name);
