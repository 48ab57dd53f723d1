-- migrate:up transaction:false
DROP DATABASE shop_archive;

-- migrate:down

