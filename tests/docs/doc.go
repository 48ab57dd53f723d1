// Package docs holds the documents to the code: what they name exists, what they show compiles and runs, and what they say
// of locks and defaults is so.
package docs
