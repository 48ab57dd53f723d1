// Package seed fills a database of any schema with rows, so the effect of a change on them can be seen.
//
// The rows are skewed: a few values and a few referenced rows occur often, most rarely. The same schema, [Spec] and day
// give the same rows. All satisfy the schema: NOT NULL columns, checks, keys, references, exclusions, enums, domains,
// partitions. Other values come from the literals of the queries, of the indexes' predicates and of the triggers'
// conditions: a text column a query compares with 'open' and 'ended' holds these two.
//
// A table no statement could fill stays empty, with the reason in [Filled.Reason]. Tables that have rows already, for
// example from migrations, stay unchanged.
//
// Rows of a partitioned table are made for the partitions: within the bounds, at whatever time. Keys of several tables
// agree where references share a column. Tables in a cycle of references are filled with made up keys first, and
// corrected when all have rows. The project's triggers and rules, and row level security that also applies to the
// owner, are off meanwhile, without needing a superuser.
package seed
