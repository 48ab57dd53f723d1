// Package trust decides which statements of a project a review runs. The project's SQL may be a stranger's, so it runs
// as a role without rights (internal/database). This package gives the clear message in front of that wall:
//
//   - Statements that run programs, access files, load code or reach other databases and servers are refused.
//   - Statements about roles, and others that need a superuser, are not run. The roles they name are made
//     without any right, so grants and policies work.
//   - OWNER TO, AUTHORIZATION and FOR ROLE get the review's own role instead of the named one.
//
// Trees are examined where there are any: statements, and bodies of functions in SQL. The bodies of DO blocks and of
// other functions, and the texts in them, are searched for words.
package trust
