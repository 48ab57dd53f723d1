// Package console serves web pages for operators: why work stands still, lanes, executions, flows, questions for people, limits,
// budgets, schedules, sequences, workers, the health of the database, and the operators' log. Each button needs a
// right.
//
//	authorize := func(r *http.Request) (console.Access, error) {
//		user, ok := session(r)
//		if !ok {
//			return console.Access{}, console.ErrSignIn
//		}
//		return console.Access{Name: user.Name, Actions: console.Actions()}, nil
//	}
//	mux.Handle("/ff/", console.Handler(eng, console.Config{Authorize: authorize}))
//
// The pages are HTML without a build step, and work without JavaScript. They use the public packages only, so a reader's role
// of the database suffices for reading. Each action and its entry in the operators' log commit together.
package console
