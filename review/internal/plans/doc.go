// Package plans compares the plans of queries before and after a change, on databases filled with the same rows and
// analysed.
//
// Each query is planned generically, for unknown arguments, and for arguments from the tables. If the sessions of the
// project's programs settle which (plan_cache_mode in the seed file), only that plan counts.
//
// A problem that existed before the change is a note. Reading a whole index for a condition the index does not have
// counts as reading its table, as a risk at most, since a LIMIT may end it. A new query is a risk at most if the seed
// file does not give the table's number of rows.
package plans
