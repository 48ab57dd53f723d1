// Package plans compares what the server does for the queries of before and after a change, on databases that were
// filled with the same rows and analysed.
//
// Each query is planned generically, for arguments that are not known, and for arguments that the tables hold. Where
// the sessions of the project's programs settle which (plan_cache_mode in the seed file), only that plan counts.
//
// Rules, with the severity where the change brings it about; what was so before is a note:
//
//   - sequential-scan: a table counted as large is read whole. Blocking for generic and custom plan alike, a risk for
//     the generic one alone, advice for the custom one alone. Going through a whole index for a condition that the
//     index does not hold counts too, as a risk at most, since a LIMIT may end it.
//     A query that is new is a risk at most where the seed file does not say how many rows the table has.
//   - large-sort: as many rows as a large table has are sorted. Severities as of sequential-scan.
//   - index-unused: no query uses the index, and it enforces nothing and serves no foreign key. Advice.
//   - index-redundant: another index serves whatever it serves. Advice.
//   - update-not-heap-only: updates that a query does were heap-only and no longer are. A risk.
//   - query-not-planned: the server refuses to plan the query, which it did before. Blocking.
package plans
