-- migrate:up
SET LOCAL lock_timeout = '2s';
ALTER TYPE status RENAME VALUE 'sent' TO 'shipped';

-- migrate:down
ALTER TYPE status RENAME VALUE 'shipped' TO 'sent';
