// Package plans compares the plans of queries before and after a change, on databases that were filled with the same
// rows and analysed.
//
// Each query is planned generically, for unknown arguments, and for arguments from the tables. If the sessions of the
// project's programs settle which (plan_cache_mode in the seed file), only that plan counts.
//
// Rules, with the severity if the change causes the problem; a problem that existed before is a note:
//
//   - sequential-scan: a table counted as large is read in full. Blocking for generic and custom plan alike, a risk for
//     the generic one alone, advice for the custom one alone. Reading a whole index for a condition that the
//     index does not have counts too, as a risk at most, since a LIMIT may end it.
//     A new query is a risk at most if the seed file does not give the table's number of rows.
//   - large-sort: as many rows as a large table has are sorted. Severities as of sequential-scan.
//   - index-unused: no query uses the index, and it enforces nothing and serves no foreign key. Advice.
//   - index-redundant: another index serves every use of it. Advice.
//   - update-not-heap-only: updates of a query were heap-only and no longer are. A risk.
//   - query-not-planned: the server refuses to plan the query, which it did before. Blocking.
package plans
