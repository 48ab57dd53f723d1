package fftest

// crash makes the worker of a kit die at a point.
type crash struct{}
