// Package plans compares the plans of queries before and after a change, on databases filled with the same rows and
// analysed.
//
// Each query is planned generically, for unknown arguments, and for arguments from the tables. If the sessions of the
// project's programs settle which (plan_cache_mode in the seed file), only this plan counts.
//
// A problem from before the change is a note. Reading a whole index for a condition the index does not have counts as
// reading the table, as a risk at most, since a LIMIT may end the reading. A new query is a risk at most if the seed
// file does not give the table's number of rows.
package plans
