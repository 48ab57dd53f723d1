// Package seed fills a database of any schema with rows, so that what a change does to them can be seen.
//
// The rows are skewed: a few values and a few referenced rows occur often, most of them rarely. They are the same
// whenever the schema, the [Spec] and the day are the same. They keep what the schema demands: columns that are not
// null, checks, keys, references, exclusions, enums, domains, partitions. What the schema does not say is read from
// the literals of the queries, of the indexes' predicates and of the triggers' conditions: a text column that a query
// compares with 'open' and 'ended' holds these two.
//
// A table that no statement could fill stays empty, and [Filled.Reason] says why. Tables that hold rows already, as
// those that migrations fill, stay as they are.
package seed
