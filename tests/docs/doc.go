// Package docs holds the documents to the code: what they name exists, what they show compiles and runs, and what they say
// of locks and defaults is so.
//
// The go command does not see that the results depend on files of another module: run these tests with -count=1, as make
// does.
package docs
