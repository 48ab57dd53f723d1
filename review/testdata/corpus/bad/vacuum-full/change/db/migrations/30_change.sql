-- migrate:up transaction:false
VACUUM FULL orders;

-- migrate:down

