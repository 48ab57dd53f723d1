-- An execution e has a budget or a limit.
(
    e.ffx_budget_ids IS NOT NULL
    OR e.ffx_limit_ids IS NOT NULL
    -- In the form another program stores.
    OR coalesce(e.raw_fields ->> 'budget_ids', '') <> ''
    OR coalesce(e.raw_fields ->> 'quota_policy_id', '') <> ''
    OR coalesce(e.policy -> 'budget_ids', '[]') NOT IN ('[]', 'null')
)::boolean AS attached,
